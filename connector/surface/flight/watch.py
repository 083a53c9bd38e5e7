"""Calls in progress: whose client has left, and whose client has stopped reading.

Owns one thread. gRPC tells neither: a call's handler has to ask whether it was cancelled, and one
that waits for a client to read waits for ever. So this asks, and ends what nobody waits for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import structlog

from accelerator.query_errors import DataUnavailable, TooManyQueries

_LOOK_EVERY_S = 0.05
_PATIENCE_S = 1.0

log = structlog.get_logger(__name__)


class Call(Protocol):
    """pyarrow.flight.ServerCallContext. It must not be touched once its call has returned."""

    def is_cancelled(self) -> bool: ...

    def peer(self) -> str: ...


class Running(Protocol):
    """accelerator.query.Query"""

    client: str | None

    @property
    def is_stopped(self) -> bool: ...

    def cancel(self) -> None: ...


class Followed:
    """One call. `is_sending` is set by its thread while it waits for the client to read."""

    def __init__(self, call: Call, query: Running | None, until_s: float) -> None:
        self.call = call
        self.query = query
        self.until_s = until_s
        self.is_sending = False
        self.over_since_s: float | None = None


class Watch:
    """Thread-safe. Whoever enters a call leaves it before the call returns.

    cut    closes the connection of a peer, by the name that gRPC gives it
    most   calls that may be in progress
    """

    def __init__(
        self,
        cut: Callable[[str], None],
        most: Callable[[], int],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cut = cut
        self._most = most
        self._monotonic_s = monotonic_s
        self._changed = threading.Condition()
        self._calls: set[Followed] = set()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Looks from here on, in a thread of its own."""
        self._thread = threading.Thread(target=self._look, name="flight-watch", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        with self._changed:
            return len(self._calls)

    def enter(self, call: Call, query: Running | None, limit_s: float) -> Followed:
        """Follows a call; one without a query is over after `limit_s` all the same.

        Raises:
            TooManyQueries: too many are in progress
            DataUnavailable: closed
        """
        with self._changed:
            if self._is_closed:
                raise DataUnavailable("The service is shutting down.")
            if len(self._calls) >= self._most():
                raise TooManyQueries(f"{len(self._calls)} calls are in progress.")
            if query is not None:
                query.client = call.peer()
            followed = Followed(call, query, self._monotonic_s() + limit_s)
            self._calls.add(followed)
            self._changed.notify_all()
            return followed

    def leave(self, followed: Followed) -> None:
        """Idempotent. From here on the call is not touched."""
        with self._changed:
            self._calls.discard(followed)

    @contextlib.contextmanager
    def following(self, call: Call, query: Running | None, limit_s: float) -> Iterator[None]:
        followed = self.enter(call, query, limit_s)
        try:
            yield
        finally:
            self.leave(followed)

    def close(self) -> None:
        """Cancels what is in progress and refuses what comes. Idempotent."""
        with self._changed:
            self._is_closed = True
            for followed in self._calls:
                if followed.query is not None:
                    followed.query.cancel()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """One round over all calls."""
        now_s = self._monotonic_s()
        left, stuck = [], []
        with self._changed:
            # Under the lock no call can return, so each of them is still there.
            for followed in self._calls:
                if followed.call.is_cancelled():
                    left.append(followed)
                elif self._is_stuck(followed, now_s):
                    stuck.append(followed.call.peer())
                    followed.until_s = now_s + _PATIENCE_S
                    followed.over_since_s = now_s
        for followed in left:
            if followed.query is not None:
                followed.query.cancel()
        for peer in stuck:
            log.warning("a client read too slowly and was cut off", peer=peer)
            self._cut(peer)

    @staticmethod
    def _is_stuck(followed: Followed, now_s: float) -> bool:
        is_over = now_s >= followed.until_s
        if followed.query is not None and followed.query.is_stopped:
            is_over = True
        if not (is_over and followed.is_sending):
            followed.over_since_s = None
            return False
        if followed.over_since_s is None:
            followed.over_since_s = now_s
        return now_s - followed.over_since_s >= _PATIENCE_S

    def _look(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._is_closed)
                if self._is_closed:
                    return
            self.look()
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, _LOOK_EVERY_S)


def cut_connections(port: int, peer: str | None = None) -> int:
    """Closes accepted connections of a local port: all, or the one of that peer. How many.

    gRPC has no call for it; the sockets are found among this process's descriptors.
    """
    wanted = None if peer is None else _address_of(peer)
    cut = 0
    for descriptor in _descriptors():
        with contextlib.suppress(OSError, ValueError):
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if connection.getsockname()[1] != port:
                    continue
                address = connection.getpeername()[:2]
                if wanted is None or (_plain(address[0]), address[1]) == wanted:
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
    return cut


def _descriptors() -> list[int]:
    folder = next(p for p in (Path("/proc/self/fd"), Path("/dev/fd")) if p.is_dir())
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def _address_of(peer: str) -> tuple[str, int] | None:
    """`ipv4:127.0.0.1:5000` and `ipv6:%5B::1%5D:5000`, as an address and a port."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return ("", 0)
    return _plain(host.strip("[]")), int(port)


def _plain(host: str) -> str:
    """A v4 address that came through a v6 socket is the v4 address."""
    return host.partition("%")[0].removeprefix("::ffff:")
