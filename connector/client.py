"""The commands' way to a running service, over its HTTP surface.

Owns the requests and what their failures mean. Knows nothing of how answers are shown.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from connector.errors import DynaduckError, ServiceUnreachable, UnknownDataset

_CHUNK_BYTES = 64 * 1024


class ServiceRefused(DynaduckError):
    """The service answered, and said no. `status` is HTTP's, `code` the service's own."""

    def __init__(self, message: str, *, code: str, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.refusal = code
        self.status = status


class ServiceSilent(ServiceUnreachable):
    """Something listens there and does not answer in time."""

    code: ClassVar[str] = "service_silent"
    default_hint = "See the service's log; it may be busy, or the address be another program's."


class AnswerCut(DynaduckError):
    """A result that broke off: what came of it is not all."""

    code: ClassVar[str] = "answer_cut"
    default_hint = "The query failed after its first rows; the service's log says why."


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service listens, and what it asks of clients."""

    host: str = "127.0.0.1"
    port: int = 8090
    token: str | None = None
    is_tls: bool = False
    ca: Path | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    @classmethod
    def of_url(cls, url: str, token: str | None = None, ca: Path | None = None) -> Address:
        """Of `http://HOST:PORT`, which a command was given.

        Raises:
            ValueError: the text is no such URL
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a service.")
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 8090)
        return cls(parts.hostname, port, token, is_tls, ca)


def reachable_host(bound_host: str) -> str:
    """The address at which this machine reaches what listens on `bound_host`."""
    host = bound_host.strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return host


class Answer:
    """A streamed answer: headers first, then chunks. Read it inside `ServiceClient.sql`."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.content_type = response.headers.get("content-type", "")
        self.state = response.headers.get("x-dynaduck-state")
        self.as_of = response.headers.get("x-dynaduck-as-of")

    def chunks(self) -> Iterator[bytes]:
        """The body.

        Raises:
            AnswerCut: the service broke off in the middle
        """
        try:
            while chunk := self._response.read1(_CHUNK_BYTES):
                yield chunk
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise AnswerCut("The result broke off before its end.") from error


class ServiceClient:
    """One service. Each call is a connection of its own; thread-safe."""

    def __init__(self, address: Address, *, timeout_s: float = 600.0) -> None:
        self.address = address
        self._timeout_s = timeout_s

    def status(self) -> dict[str, Any]:
        """The /v1/status document."""
        document: dict[str, Any] = self._document("GET", "/v1/status")
        return document

    def ready(self) -> dict[str, Any]:
        """The /v1/ready document, ready or not."""
        with self._request("GET", "/v1/ready", expected=(200, 503)) as response:
            document: dict[str, Any] = json.loads(response.read())
        return document

    def refresh(self, dataset: str) -> str:
        """Asks for a new snapshot; returns what the service says."""
        return self._act(dataset, "acceleration/refresh")

    def pause(self, dataset: str) -> str:
        return self._act(dataset, "pause")

    def resume(self, dataset: str) -> str:
        return self._act(dataset, "resume")

    def repair(self, dataset: str, keys: Sequence[str]) -> int:
        """Has these keys (DynamoDB JSON texts) read anew from the table; how many were."""
        path = f"/v1/datasets/{quote(dataset, safe='')}/repair"
        return int(self._document("POST", path, {"keys": list(keys)})["repaired"])

    def dead_letters(self, dataset: str) -> list[dict[str, Any]]:
        path = f"/v1/datasets/{quote(dataset, safe='')}/dead-letters"
        found: list[dict[str, Any]] = self._document("GET", path)
        return found

    def replay_dead_letters(self, dataset: str) -> dict[str, int]:
        return self._mend(dataset, "replay")

    def drop_dead_letters(self, dataset: str) -> int:
        return self._mend(dataset, "drop")["dropped"]

    def _mend(self, dataset: str, action: str) -> dict[str, int]:
        path = f"/v1/datasets/{quote(dataset, safe='')}/dead-letters/{action}"
        found: dict[str, int] = self._document("POST", path)
        return found

    @contextmanager
    def sql(self, statement: str, media_type: str, parameters: Any = None) -> Iterator[Answer]:
        """Runs a query; its answer is read while the context is open."""
        body = json.dumps({"sql": statement, "parameters": parameters}).encode()
        headers = {"accept": media_type, "content-type": "application/json"}
        with self._request("POST", "/v1/sql", body=body, headers=headers) as response:
            yield Answer(response)

    def _act(self, dataset: str, action: str) -> str:
        path = f"/v1/datasets/{quote(dataset, safe='')}/{action}"
        return str(self._document("POST", path).get("message", ""))

    def _document(self, method: str, path: str, body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        with self._request(method, path, body=sent, headers=headers) as response:
            return json.loads(response.read())

    @contextmanager
    def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        expected: tuple[int, ...] = (200, 202),
    ) -> Iterator[http.client.HTTPResponse]:
        """An answered request.

        Raises:
            ServiceUnreachable: nobody answers there
            UnknownDataset: there is no dataset of that name
            ServiceRefused: the answer is another refusal
        """
        sent = {"accept-encoding": "identity", **(headers or {})}
        if self.address.token is not None:
            sent["authorization"] = f"Bearer {self.address.token}"
        connection = self._connection()
        try:
            try:
                connection.request(method, path, body=body, headers=sent)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
            # A response to be closed owns the socket; closing the connection would not close it.
            with response:
                if response.status not in expected:
                    raise _refusal(response)
                yield response
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        at = self.address
        if not at.is_tls:
            return http.client.HTTPConnection(at.host, at.port, timeout=self._timeout_s)
        context = ssl.create_default_context(cafile=None if at.ca is None else str(at.ca))
        return http.client.HTTPSConnection(
            at.host, at.port, timeout=self._timeout_s, context=context
        )

    def _unreachable(self, error: Exception) -> ServiceUnreachable:
        if isinstance(error, ssl.SSLError):
            return ServiceUnreachable(
                f"The service at {self.address.url} has no certificate that this machine trusts: "
                f"{error.reason or error}.",
                hint="Give the certificate's authority with --ca.",
            )
        if isinstance(error, TimeoutError):
            return ServiceSilent(
                f"The service at {self.address.url} did not answer in {self._timeout_s:g} s."
            )
        return ServiceUnreachable(f"No service answers at {self.address.url}.")


def _refusal(response: http.client.HTTPResponse) -> DynaduckError:
    try:
        said = json.loads(response.read(64 * 1024))["error"]
        if said["code"] == UnknownDataset.code:
            return UnknownDataset(said["message"], hint=said.get("hint"))
        return ServiceRefused(
            said["message"], code=said["code"], status=response.status, hint=said.get("hint", "")
        )
    except (ValueError, KeyError, TypeError):
        return ServiceRefused(
            f"The service answered {response.status} {response.reason}.",
            code="unexpected",
            status=response.status,
            hint="See that the address is a dynaduck service and no proxy.",
        )
