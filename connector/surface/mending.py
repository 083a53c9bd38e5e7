"""Endpoints that mend rows: repair of single keys, and what becomes of dead letters.

Owns their paths and documents; the work is `connector.snapshot.single_keys`.

    POST /v1/datasets/{name}/repair                 {"keys": [DynamoDB JSON text, …]}
    GET  /v1/datasets/{name}/dead-letters
    POST /v1/datasets/{name}/dead-letters/replay
    POST /v1/datasets/{name}/dead-letters/drop
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connector.errors import ServiceError
from connector.snapshot.single_keys import SingleKeys

MOST_KEYS = 10_000


class BadRequest(ServiceError):
    code = "bad_request"
    default_hint = 'The body is {"keys": [KEY, ...]}, each KEY a DynamoDB JSON text.'


class Mending(Protocol):
    """Who mends the rows of a dataset. Raises UnknownDataset."""

    def single_keys(self, dataset: str) -> SingleKeys: ...


def mending_routes(mending: Mending) -> list[Route]:
    path = "/v1/datasets/{name}"

    def keys_of(request: Request) -> SingleKeys:
        return mending.single_keys(request.path_params["name"])

    async def repair(request: Request) -> Response:
        keys = _keys(await request.body())
        outcome = await run_in_threadpool(keys_of(request).read_anew, keys)
        return JSONResponse({"repaired": outcome.read, "dead_letters": outcome.dead_letters})

    async def letters(request: Request) -> Response:
        found = await run_in_threadpool(keys_of(request).dead_letters)
        return JSONResponse([asdict(letter) for letter in found])

    async def replay(request: Request) -> Response:
        return JSONResponse(asdict(await run_in_threadpool(keys_of(request).replay)))

    async def drop(request: Request) -> Response:
        return JSONResponse({"dropped": await run_in_threadpool(keys_of(request).drop)})

    def post(suffix: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
        return Route(path + suffix, endpoint, methods=["POST"])

    return [
        post("/repair", repair),
        Route(path + "/dead-letters", letters),
        post("/dead-letters/replay", replay),
        post("/dead-letters/drop", drop),
    ]


def _keys(body: bytes) -> list[str]:
    try:
        keys: Any = json.loads(body)["keys"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest("The body has no keys.") from error
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise BadRequest("The keys are not a list of texts.")
    if len(keys) > MOST_KEYS:
        raise BadRequest(f"More than {MOST_KEYS} keys at once.")
    return keys
