"""Where the statements of a session go: to the service, and to the file only while none runs.

Owns the choice, and the patience with a service that restarts. Each statement is a connection of
its own, so a service that is back is one that answers. Must not know what a prompt is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

from connector.cli.sql_view import QuerySource, Rows
from connector.client import ServiceSilent
from connector.errors import ServiceUnreachable

PATIENCE_S: Final = 30.0
TRY_EVERY_S: Final = 0.5


class SessionQueries:
    """Once the service has answered, its file is not touched: whoever opens it keeps a service that
    restarts from its own data. Such a service is waited for.
    """

    def __init__(
        self,
        service: QuerySource,
        file: Callable[[], AbstractContextManager[QuerySource]],
        tell: Callable[[str], object],
        *,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._file = file
        self._tell = tell
        self._patience_s = patience_s
        self._sleep = sleep
        self._monotonic_s = monotonic_s
        self._was_reached = False

    @contextmanager
    def run(self, sql: str, media_type: str) -> Iterator[Rows]:
        with ExitStack() as stack:
            yield self._opened(stack, sql, media_type)

    def _opened(self, stack: ExitStack, sql: str, media_type: str) -> Rows:
        gives_up_s: float | None = None
        while True:
            try:
                rows = stack.enter_context(self._service.run(sql, media_type))
            except ServiceSilent:
                raise
            except ServiceUnreachable:
                if not self._was_reached:
                    return stack.enter_context(
                        stack.enter_context(self._file()).run(sql, media_type)
                    )
                now_s = self._monotonic_s()
                if gives_up_s is None:
                    gives_up_s = now_s + self._patience_s
                    self._tell("The service is away; waiting for it. Ctrl-C gives up.\n")
                if now_s >= gives_up_s:
                    raise
                self._sleep(TRY_EVERY_S)
            else:
                self._was_reached = True
                return rows
