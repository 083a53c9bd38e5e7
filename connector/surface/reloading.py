"""The configuration of a running service, read again when somebody asks for it.

Owns the order: read, check the whole, apply what may change, name what waits for a restart. A file
that is wrong in one place changes nothing at all. `ask` may be called from a signal handler; `step`
belongs to one thread. Must not know what a signal is, nor what a changed value does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import structlog

from connector.config import Config
from connector.errors import DynaduckError
from connector.reload import Change, changes, taken_over
from connector.surface.status import ConfigurationStatus
from metrics.recorder import Recorder

log = structlog.get_logger(__name__)


class Reloading:
    """`status` says what the last reload came to; nobody has to have read the log for it.

    read     gives the configuration as file, environment and flags say it now
    check    raises DynaduckError for what only this service cannot use
    apply    makes a configuration hold that differs in reloadable settings alone
    now_ms   AWS time
    """

    def __init__(
        self,
        running: Config,
        read: Callable[[], Config],
        check: Callable[[Config], None],
        apply: Callable[[Config], None],
        *,
        recorder: Recorder,
        now_ms: Callable[[], int | None],
    ) -> None:
        self._running = running
        self._read = read
        self._check = check
        self._apply = apply
        self._recorder = recorder
        self._now_ms = now_ms
        self._asked = threading.Event()
        self.status = ConfigurationStatus(None if running.file is None else str(running.file))
        recorder.configuration(is_good=True, waiting=0)

    def ask(self) -> None:
        """Asks for a reload by the next `step`; asking twice before it is asking once."""
        self._asked.set()

    def step(self) -> None:
        """Reloads if it was asked for. Never raises for what the file says."""
        if not self._asked.is_set():
            return
        self._asked.clear()
        try:
            read = self._read()
            self._check(read)
        except (DynaduckError, OSError) as error:
            self._refused(error)
            return
        self._take(read)

    def _take(self, read: Config) -> None:
        for warning in read.warnings:
            log.warning("the configuration has something odd", warning=warning)
        found = changes(self._running, read)
        held = tuple(change for change in found if change.holds)
        waiting = tuple(change.path for change in found if not change.holds)
        if held:
            self._running = taken_over(self._running, read)
            self._apply(self._running)
        for change in found:
            _tell(change)
        log.info(
            "the configuration was read again",
            file=self.status.file,
            changed=len(held),
            needs_restart=list(waiting),
        )
        self._recorder.configuration(is_good=True, waiting=len(waiting), outcome="ok")
        self._note(error=None, needs_restart=waiting)

    def _refused(self, error: Exception) -> None:
        log.error(
            "the configuration was not taken: nothing has changed",
            file=self.status.file,
            error=error,
        )
        waiting = self.status.needs_restart
        self._recorder.configuration(is_good=False, waiting=len(waiting), outcome="refused")
        said = f"{error} {getattr(error, 'hint', '')}".strip()
        self._note(error=said, needs_restart=waiting)

    def _note(self, *, error: str | None, needs_restart: tuple[str, ...]) -> None:
        self.status = replace(
            self.status,
            reloads=self.status.reloads + 1,
            reloaded_at_ms=self._now_ms(),
            error=error,
            needs_restart=needs_restart,
        )


def _tell(change: Change) -> None:
    if change.holds:
        log.info("a setting has changed", setting=change.path, was=change.before, now=change.after)
    else:
        log.warning(
            "a changed setting needs a restart",
            setting=change.path,
            holds=change.before,
            asked=change.after,
        )
