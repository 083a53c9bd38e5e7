"""Whether a host can be reached, and which step fails: the name, the connection, TLS or HTTP.

Owns one request without credentials, made by hand so that each step has an outcome of its own. The
`Date` of the answer comes with it: it is AWS time even where AWS would refuse what is signed. Must
not know what the host serves.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

TIMEOUT_S: Final = 4.0


class Step(StrEnum):
    DNS = "dns"
    TCP = "tcp"
    TLS = "tls"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one request came.

    failed_at   None when the host answered
    proxy       the proxy that AWS calls go through; the host itself was then not tried
    at_ms       the answer's Date
    """

    url: str
    address: str | None = None
    failed_at: Step | None = None
    error: str = ""
    proxy: str | None = None
    at_ms: int | None = None

    @property
    def is_reached(self) -> bool:
        return self.failed_at is None and self.proxy is None


def reach(url: str, *, env: Mapping[str, str] = os.environ, timeout_s: float = TIMEOUT_S) -> Reach:
    """Asks for `/` and reads the head of the answer; any status will do."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(host):
        return Reach(url, proxy=urlsplit(proxy).netloc.rpartition("@")[2] or proxy)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Reach(url, failed_at=Step.DNS, error=str(error))
    address = str(addresses[0][4][0])
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        return Reach(url, address, Step.TCP, str(error) or type(error).__name__)
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=env.get("AWS_CA_BUNDLE") or None)
            connection = context.wrap_socket(connection, server_hostname=host)
        except OSError as error:
            connection.close()
            return Reach(url, address, Step.TLS, str(error))
    with connection:
        return _asked(connection, url, address, parts.netloc)


def _asked(connection: socket.socket, url: str, address: str, host: str) -> Reach:
    try:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        date = answer.getheader("Date")
        answer.close()
    except (OSError, http.client.HTTPException) as error:
        return Reach(url, address, Step.HTTP, str(error) or type(error).__name__)
    return Reach(url, address, at_ms=_date_ms(date))


def _date_ms(header: str | None) -> int | None:
    try:
        at = parsedate_to_datetime(header or "")
    except ValueError:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
