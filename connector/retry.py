"""How long to wait before trying again.

Owns the back-off policy: capped exponential with full jitter. Pure: an attempt number and a random
draw in, seconds out; loops add them to their own clock. `patiently` is the same policy for the few
calls that are made outside a loop. Must not know what is being retried.

Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import tenacity

from connector.clock import Clock
from connector.errors import Retry, SourceError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delay_s` lies between `floor_s` and min(cap_s, base_s * 2**attempt), uniformly.

    The floor keeps an unlucky row of small draws from becoming a busy loop.
    """

    base_s: float = 0.2
    cap_s: float = 20.0
    floor_s: float = 0.02

    def ceiling_s(self, attempt: int) -> float:
        # 2**60 * base_s is past any cap: the exponent is bounded so that it never overflows.
        return min(self.cap_s, self.base_s * 2.0 ** min(attempt, 60))

    def delay_s(self, attempt: int, draw: float) -> float:
        """The wait after failure number `attempt` (from 0); `draw` is uniform in [0, 1)."""
        return max(self.floor_s, self.ceiling_s(attempt) * draw)


BACKOFF: Final = Backoff()


def patiently(
    call: Callable[[], T],
    clock: Clock,
    *,
    attempts: int,
    backoff: Backoff = BACKOFF,
    draw: Callable[[], float] = random.random,
) -> T:
    """What `call` returns, tried up to `attempts` times while its errors are worth a retry.

    Raises:
        SourceError: the last one, or the first that no retry will cure.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(attempts),
        wait=lambda state: backoff.delay_s(state.attempt_number - 1, draw()),
        retry=tenacity.retry_if_exception(_is_worth_a_retry),
        sleep=clock.sleep,
        reraise=True,
    )
    return retrying(call)


def _is_worth_a_retry(error: BaseException) -> bool:
    if not isinstance(error, SourceError):
        return False
    return error.retry is Retry.BACKOFF and not error.needs_person
