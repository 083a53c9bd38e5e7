"""What SIGHUP means: a reload, unless the terminal was closed, which is what it first meant.

Owns the telling apart, and the answer that holds until `dynaduck run` has its own. Imports nothing
of weight: it comes before everything that takes time to import.
"""

from __future__ import annotations

import os
import signal


def has_terminal() -> bool:
    """True where this process has a terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def outlive_early_reloads() -> None:
    """A reload that is asked for now changes nothing, since nothing was read yet."""
    had_terminal = has_terminal()

    def hung_up(*_: object) -> None:
        if had_terminal and not has_terminal():
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGHUP)

    signal.signal(signal.SIGHUP, hung_up)
