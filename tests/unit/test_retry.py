"""The back-off policy: capped, jittered, never a busy loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import AccessDenied, DynaduckError, ShardGone, Throttled
from connector.retry import BACKOFF, Backoff, patiently
from tests.unit.scan_table import StillClock


@given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_between_the_floor_and_the_cap(attempt: int, draw: float) -> None:
    """However long an outage lasts, the next try is at most the cap away and never at once."""
    delay_s = BACKOFF.delay_s(attempt, draw)

    assert BACKOFF.floor_s <= delay_s <= BACKOFF.cap_s


def test_the_ceiling_doubles_until_the_cap() -> None:
    """Full jitter: the draw spreads over all of the doubled interval."""
    backoff = Backoff(base_s=1.0, cap_s=10.0, floor_s=0.0)

    assert [backoff.ceiling_s(attempt) for attempt in range(6)] == [1, 2, 4, 8, 10, 10]
    assert backoff.delay_s(2, 0.25) == 1.0


class Calls:
    """Fails with each error in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_patience_waits_on_the_given_clock() -> None:
    """Transient errors are tried again with the policy's waits, on the clock that is injected."""
    clock, calls = StillClock(), Calls(Throttled("t"), Throttled("t"))

    answer = patiently(
        calls, clock, attempts=3, backoff=Backoff(base_s=1.0, cap_s=9.0), draw=lambda: 0.5
    )

    assert (answer, calls.made, clock.now_s) == ("answer", 3, 100.0 + 0.5 + 1.0)


def test_patience_ends_with_the_error_itself() -> None:
    """The last error comes out as it was, not wrapped."""
    last = Throttled("third")

    with pytest.raises(Throttled) as caught:
        patiently(Calls(Throttled("first"), Throttled("second"), last), StillClock(), attempts=3)
    assert caught.value is last


@pytest.mark.parametrize(
    "error", [AccessDenied("no", action="a:b"), ShardGone("gone"), ValueError("defect")]
)
def test_what_waiting_does_not_mend_is_not_waited_for(error: Exception) -> None:
    """A command that is denied says so at once."""
    calls = Calls(error)

    with pytest.raises((DynaduckError, ValueError)):
        patiently(calls, StillClock(), attempts=5)
    assert calls.made == 1
