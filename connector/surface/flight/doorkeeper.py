"""Who may call Flight, and what a call's headers say.

Owns the token's check, for each call anew, and logging in by name and password, by which a driver
gets the token to go on with. The name is of no account, the password is the token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow.flight as flight

_MOST_HEADER_BYTES = 1_000
_DEMANDS = {
    "x-dynaduck-min-time": "min_time",
    "x-dynaduck-max-staleness": "max_staleness",
    "x-dynaduck-wait": "wait",
}
Headers = Mapping[str, list[str]]


class Doorkeeper(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets through who has the token: as Bearer, or as the password of Basic."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    def start_call(self, _info: Any, headers: Headers) -> Any:
        given = _authorization(headers)
        if self._token is None:
            # A driver that logs in wants a token, whatever it is.
            return _Entered(headers, b"none" if given.basic else None)
        if not any(hmac.compare_digest(self._token, one) for one in given.secrets):
            raise flight.FlightUnauthenticatedError(
                "This server needs the token, as `authorization: Bearer TOKEN` or as the password "
                "of a login (runtime.http.token)."
            )
        return _Entered(headers, self._token if given.basic else None)


@dataclass(frozen=True, slots=True)
class _Given:
    secrets: tuple[bytes, ...]
    basic: bool = False


def _authorization(headers: Headers) -> _Given:
    lower = {name.lower(): values for name, values in headers.items()}
    for value in lower.get("authorization", []):
        scheme, _, text = value.partition(" ")
        if scheme.lower() == "bearer":
            return _Given((text.strip().encode("utf-8", "surrogateescape"),))
        if scheme.lower() == "basic":
            with suppress(binascii.Error, ValueError):
                decoded = base64.b64decode(text.strip(), validate=True)
                return _Given((decoded.partition(b":")[2],), basic=True)
    return _Given(())


class _Entered(flight.ServerMiddleware):  # type: ignore[misc]
    """A call that was let in. Who logged in by password is told the token to go on with."""

    def __init__(self, headers: Headers, token: bytes | None) -> None:
        self._token = token
        asked = {
            _DEMANDS[name.lower()]: values[0][:_MOST_HEADER_BYTES]
            for name, values in headers.items()
            if name.lower() in _DEMANDS and values and isinstance(values[0], str)
        }
        self.demands = asked

    def sending_headers(self) -> dict[str, str]:
        if self._token is None:
            return {}
        return {"authorization": "Bearer " + self._token.decode()}


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """The doorkeeper has judged a login before it comes here: there is nothing left to ask."""

    def authenticate(self, _outgoing: Any, _incoming: Any) -> None:
        return

    def is_valid(self, _token: bytes) -> bytes:
        return b""
