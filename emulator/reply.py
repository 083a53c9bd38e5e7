"""An answer on its way to the client, and what becomes of it on that way.

Must not know why.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Reply:
    """What goes back. Content-Length is of `body`, whatever part of it is sent.

    delay_s: how long it waits first. is_dropped: nothing is sent and the connection closes.
    sent_bytes: so much of the body goes out (None: all); then the connection closes, or stays
    open in silence if it `hangs`.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    delay_s: float = 0.0
    is_dropped: bool = False
    sent_bytes: int | None = None
    hangs: bool = False
    outcome: str = field(default="OK")


def dropped() -> Reply:
    """No answer at all."""
    return Reply(0, {}, b"", is_dropped=True, outcome="Dropped")
