"""The HTTP surface: routes, answers, and who may ask.

Owns the mapping from HTTP to the service's facts and to the query runner; decides nothing about
datasets. `server` runs the app, `status` shapes its documents, `accelerator.results` its rows.

Every refusal is `{"error": {"code", "message", "hint"}}`. A result is streamed; when a query fails
after its first rows the connection is cut, so no client takes a part for the whole.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import msgspec
import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from accelerator.gate_rules import MAX_TEXT_BYTES
from accelerator.query import Query, QueryRunner
from accelerator.query_errors import QueryCancelled, QueryError, QueryFailed
from accelerator.query_slots import QueryLimits
from accelerator.results import MEDIA_TYPES, Encoder, encoder_for
from connector.errors import DynaduckError, UnknownDataset
from connector.surface.compression import Codec, codec_for
from connector.surface.demands import parse_demand
from connector.surface.mending import Mending, mending_routes
from connector.surface.parameters import decode_parameters
from connector.surface.runbook import runbook_headers, runbook_text
from connector.surface.server import is_loopback
from connector.surface.status import ServiceFacts, rfc3339
from connector.surface.status_page import page_headers, page_text
from metrics.prometheus import PrometheusExporter

OPEN_PATHS = frozenset({"/health", "/v1/ready", "/metrics"})

# JSON escapes can make a text six times as long, and parameters come beside it.
_MAX_BODY_BYTES = 8 * MAX_TEXT_BYTES
# What a client that stops reading leaves in our memory.
_PIECE_BYTES = 64 * 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surface:
    """What the app is made of. `token` None means: nobody needs one (loopback only)."""

    facts: ServiceFacts
    queries: QueryRunner
    exporter: PrometheusExporter
    token: str | None = None
    mending: Mending | None = None


def build_app(surface: Surface) -> Starlette:
    """The ASGI application. It holds no state of its own."""
    endpoints = _Endpoints(surface)
    routes = [
        Route("/", endpoints.page),
        Route("/runbook", endpoints.runbook),
        Route("/health", endpoints.health),
        Route("/metrics", endpoints.metrics),
        Route("/v1/ready", endpoints.ready),
        Route("/v1/status", endpoints.status),
        Route("/v1/datasets", endpoints.datasets),
        Route(
            "/v1/datasets/{name}/acceleration/refresh",
            endpoints.action(surface.facts.refresh, "Dataset refresh triggered for {}."),
            methods=["POST"],
        ),
        Route(
            "/v1/datasets/{name}/pause",
            endpoints.action(
                surface.facts.pause, "Dataset {} is paused; its data stays queryable."
            ),
            methods=["POST"],
        ),
        Route(
            "/v1/datasets/{name}/resume",
            endpoints.action(surface.facts.resume, "Dataset {} is reading again."),
            methods=["POST"],
        ),
        Route("/v1/sql", endpoints.sql, methods=["POST"]),
    ]
    if surface.mending is not None:
        routes += mending_routes(surface.mending)
    return Starlette(
        routes=routes,
        middleware=[Middleware(Gatekeeper, token=surface.token)],
        exception_handlers={
            404: _no_such_path,
            405: _wrong_method,
            DynaduckError: _refused,
            QueryError: _query_refused,
            ClientDisconnect: _gone,
        },
    )


class Gatekeeper:
    """Lets through who has the token, and no web page of another origin.

    The token comes as `Authorization: Bearer`, as `X-API-Key`, or as the password of Basic
    authentication, which is what a browser asks its user for.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD") and _is_foreign(request):
            return error_response(
                403, "foreign_origin", "Requests from pages of another origin are refused."
            )
        if request.url.path in OPEN_PATHS:
            return None
        if self._token is None:
            if _is_named_otherwise(request):
                return error_response(
                    403,
                    "foreign_host",
                    "Without a token only requests to a loopback address are answered.",
                    "Ask http://127.0.0.1, or set runtime.http.token.",
                )
            return None
        if any(hmac.compare_digest(self._token, given) for given in _credentials(request)):
            return None
        answer = error_response(
            401,
            "unauthorized",
            "This endpoint needs the token.",
            "Send it as `Authorization: Bearer TOKEN` (runtime.http.token).",
        )
        answer.headers["WWW-Authenticate"] = 'Basic realm="dynaduck", charset="UTF-8"'
        return answer


def _is_foreign(request: Request) -> bool:
    """True for a browser that sends a page of one origin's request to us, another."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return origin.partition("://")[2] != request.headers.get("host")


def _is_named_otherwise(request: Request) -> bool:
    """True where the Host header is no loopback name.

    A page whose own name is made to resolve to 127.0.0.1 is of one origin with us, as its browser
    sees it; the name it was loaded under gives it away.
    """
    host = request.headers.get("host")
    if not host:
        return False
    name = host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not is_loopback(name.strip("[]"))


def _credentials(request: Request) -> list[bytes]:
    given = []
    if (key := request.headers.get("x-api-key")) is not None:
        given.append(key.encode("utf-8", "surrogateescape"))
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given.append(value.strip().encode("utf-8", "surrogateescape"))
    elif scheme.lower() == "basic":
        with suppress(binascii.Error, ValueError):
            given.append(base64.b64decode(value.strip(), validate=True).partition(b":")[2])
    return given


def _threads_wanted(limits: QueryLimits) -> int:
    """One per query that runs or waits; more than that are turned away by the runner."""
    return limits.max_concurrent + limits.max_waiting + 8


class _Endpoints:
    def __init__(self, surface: Surface) -> None:
        self._facts = surface.facts
        self._queries = surface.queries
        self._exporter = surface.exporter
        self._threads = anyio.CapacityLimiter(_threads_wanted(self._queries.limits))

    async def health(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    async def page(self, _request: Request) -> Response:
        return HTMLResponse(page_text(), headers=page_headers())

    async def runbook(self, _request: Request) -> Response:
        text = await run_in_threadpool(runbook_text)
        return HTMLResponse(text, headers=runbook_headers())

    async def metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, content_type = await run_in_threadpool(self._exporter.render, accept)
        return Response(body, headers={"content-type": content_type})

    async def ready(self, _request: Request) -> Response:
        readiness = await run_in_threadpool(self._facts.ready)
        return json_response(readiness.to_json(), 200 if readiness.is_ready else 503)

    async def status(self, _request: Request) -> Response:
        status = await run_in_threadpool(self._facts.status)
        return json_response(status.to_json())

    async def datasets(self, _request: Request) -> Response:
        status = await run_in_threadpool(self._facts.status)
        return json_response(
            [
                {
                    "from": f"dynamodb:{dataset.table_name}",
                    "name": dataset.name,
                    "acceleration_enabled": True,
                    "refresh_mode": dataset.refresh_mode,
                    "status": dataset.state.value,
                    "rows": dataset.rows,
                }
                for dataset in status.datasets
            ]
        )

    def action(
        self, act: Callable[[str], None], message: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that asks the service for something and does not wait for it."""

        async def endpoint(request: Request) -> Response:
            name = request.path_params["name"]
            await run_in_threadpool(act, name)
            return json_response({"message": message.format(name)}, 202)

        return endpoint

    async def sql(self, request: Request) -> Response:
        make_encoder = encoder_for(request.headers.get("accept", ""))
        if make_encoder is None:
            return error_response(
                406,
                "not_acceptable",
                "No result format fits the Accept header.",
                f"There are: {', '.join(MEDIA_TYPES)}.",
            )
        sql, parameters = await _read_statement(request)
        demand = parse_demand(request.query_params)
        query = self._queries.open(sql, parameters, surface="http", demand=demand)
        if request.client is not None:
            query.client = f"{request.client.host}:{request.client.port}"
        codec = codec_for(request.headers.get("accept-encoding", ""))
        begin = partial(_begun, query, make_encoder, codec)
        try:
            begun = await _unless_gone(request, query, lambda: self._in_thread(begin))
        except BaseException:
            query.cancel()
            raise
        headers = {"content-type": make_encoder.content_type, **_freshness(query)}
        if codec is not None:
            headers |= {"content-encoding": codec.name, "vary": "accept-encoding"}
        if begun.is_whole and len(begun.body) <= _PIECE_BYTES:
            return Response(begun.body, headers=headers)
        chunks = self._chunks(query, begun, codec)
        return ResultStream(chunks, headers, query, self._queries.limits.timeout_s)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        self._threads.total_tokens = _threads_wanted(self._queries.limits)
        return await anyio.to_thread.run_sync(call, limiter=self._threads)

    async def _chunks(
        self, query: Query, begun: _Begun, codec: Codec | None
    ) -> AsyncIterator[bytes]:
        try:
            if begun.body:
                yield begun.body
            is_whole = begun.is_whole
            while not is_whole:
                more = partial(_more, query, begun.encoder, codec)
                chunk, is_whole = await self._in_thread(more)
                if chunk:
                    yield chunk
        finally:
            # Also reached when the client leaves: the task is cancelled at one of the awaits.
            query.cancel()


@dataclass(frozen=True, slots=True)
class _Begun:
    """The answer as far as the first rows; `is_whole` when no more come."""

    encoder: Encoder
    body: bytes
    is_whole: bool


def _begun(query: Query, make_encoder: Callable[..., Encoder], codec: Codec | None) -> _Begun:
    """Runs the query up to its first rows, all in one thread: each hop costs as much as a parse.

    The first rows come before the status line: most failures show here.
    """
    query.start()
    encoder = make_encoder(query.schema, query.column_types)
    lead = encoder.begin()
    body, is_whole = _more(query, encoder, codec, lead)
    return _Begun(encoder, body, is_whole)


def _more(
    query: Query, encoder: Encoder, codec: Codec | None, lead: bytes = b""
) -> tuple[bytes, bool]:
    """The next bytes of the answer, and whether they are the last."""
    batch = query.next_batch()
    data = lead if batch is None else lead + encoder.rows(batch)
    is_whole = batch is None or query.is_over
    if is_whole:
        query.raise_if_stopped()
        data += encoder.end()
    if codec is not None:
        data = codec.feed(data) + (codec.finish() if is_whole else b"")
    return data, is_whole


class ResultStream(Response):
    """Sends a result piece by piece, and cuts the connection when it cannot be sent whole.

    A cut answer lacks its end, so every HTTP client notices. A client that stops reading is cut
    too, when the query's time is over: what it did not take is at most one piece.
    """

    def __init__(
        self, chunks: AsyncIterator[bytes], headers: dict[str, str], query: Query, limit_s: float
    ) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._chunks = chunks
        self._query = query
        self._limit_s = limit_s

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with anyio.move_on_after(self._limit_s) as limit:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._cancel_when_gone, receive, group.cancel_scope)
                    await self._send(send)
                    group.cancel_scope.cancel()
            if limit.cancelled_caught:
                log.warning("a client read too slowly and was cut off", rows=self._query.rows)
        finally:
            self._query.cancel()

    async def _send(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            async for chunk in self._chunks:
                for start in range(0, len(chunk), _PIECE_BYTES):
                    piece = chunk[start : start + _PIECE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except QueryError as error:
            if not isinstance(error, QueryCancelled):
                log.warning("a result broke off", error=error, rows=self._query.rows)
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        scope.cancel()


async def _unless_gone(request: Request, query: Query, call: Callable[[], Awaitable[Any]]) -> Any:
    """Awaits the call; a client that leaves meanwhile cancels the query, which ends the call."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue
        query.cancel()

    failure: QueryError | None = None
    result = None
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            result = await call()
        except QueryError as error:
            failure = error
        group.cancel_scope.cancel()
    if isinstance(failure, QueryCancelled) and await request.is_disconnected():
        raise ClientDisconnect
    if failure is not None:
        raise failure
    return result


async def _read_statement(request: Request) -> tuple[str, Any]:
    """The SQL of the body, and its parameters: plain text, or JSON {"sql", "parameters"}."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise BodyTooLarge(f"The body has more than {_MAX_BODY_BYTES} bytes.")
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == "application/json":
        return decode_parameters(bytes(body))
    try:
        return body.decode("utf-8"), None
    except UnicodeDecodeError:
        raise QueryFailed("The body is not UTF-8 text.") from None


class BodyTooLarge(QueryError):
    code = "too_large"
    http_status = 413


def _freshness(query: Query) -> dict[str, str]:
    headers = {}
    if query.freshness.state is not None:
        headers["x-dynaduck-state"] = query.freshness.state
    if query.freshness.as_of_ms is not None:
        headers["x-dynaduck-as-of"] = rfc3339(query.freshness.as_of_ms)
    return headers


# -- answers --------------------------------------------------------------------------------------


def json_response(document: Any, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(document),
        status,
        headers={"content-type": "application/json", "cache-control": "no-store"},
    )


def error_response(status: int, code: str, message: str, hint: str = "") -> Response:
    return json_response({"error": {"code": code, "message": message, "hint": hint}}, status)


async def _refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, DynaduckError):
        raise error
    status = 404 if isinstance(error, UnknownDataset) else 409
    return error_response(status, error.code, error.message, error.hint)


async def _query_refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, QueryError):
        raise error
    answer = error_response(error.http_status, error.code, str(error), error.hint)
    if error.http_status in (429, 503):
        answer.headers["retry-after"] = "1"
    return answer


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _no_such_path(request: Request, _error: Exception) -> Response:
    return error_response(404, "no_such_path", f"There is nothing at {request.url.path[:200]}.")


async def _wrong_method(request: Request, error: Exception) -> Response:
    told = (getattr(error, "headers", None) or {}).get("Allow", "")
    # Starlette names them in the order of a set, which is another in each process.
    allowed = ", ".join(sorted(told.split(", ")))
    answer = error_response(
        405,
        "wrong_method",
        f"{request.method} is not what this path takes.",
        f"It takes {allowed}." if allowed else "",
    )
    if allowed:
        answer.headers["allow"] = allowed
    return answer
