"""Named places at which a test may stop the process or raise.

Owns the registry. `DYNADUCK_FAILPOINT=name:kill[:n]` kills this process with SIGKILL at the n-th
hit of that name (the first by default): the harness of the kill tests. In one process a test
installs a callable with `on`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_hooks: dict[str, Callable[[], None]] = {}


def hit(name: str) -> None:
    """Does nothing unless a test asked for this name."""
    if _hooks:
        hook = _hooks.get(name)
        if hook is not None:
            hook()


@contextmanager
def on(name: str, hook: Callable[[], None]) -> Iterator[None]:
    """Calls `hook` at each hit of `name` inside the block."""
    _hooks[name] = hook
    try:
        yield
    finally:
        del _hooks[name]


def install(specification: str) -> None:
    """Arms what DYNADUCK_FAILPOINT says; an empty text arms nothing.

    Raises:
        ValueError: the text is not `name:kill` or `name:kill:n`.
    """
    if not specification:
        return
    name, _, rest = specification.partition(":")
    action, _, count = rest.partition(":")
    if action != "kill" or not name:
        raise ValueError(f"a failpoint is name:kill[:n], not {specification!r}")
    remaining = int(count or "1")

    def kill() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _hooks[name] = kill


install(os.environ.get("DYNADUCK_FAILPOINT", ""))
