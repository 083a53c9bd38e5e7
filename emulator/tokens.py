"""Requests that were sent twice: TransactWriteItems is idempotent for ten minutes.

Owns the client tokens and the answers they got. Must not know what a request does. Not safe for
threads: the caller holds a lock.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from emulator.errors import AwsError

_KEPT_S = 600.0
_MAX_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that succeeded."""

    time_s: float
    request: bytes
    answer: bytes


class ClientTokens:
    """The tokens of the last ten minutes, oldest first."""

    def __init__(self) -> None:
        self._answered: OrderedDict[str, Answered] = OrderedDict()

    def answer(self, token: str, request: bytes, now_s: float) -> bytes | None:
        """The answer that the same request got under this token.

        Raises:
            AwsError: IdempotentParameterMismatchException for another request.
        """
        known = self._answered.get(token)
        if known is None or known.time_s < now_s - _KEPT_S:
            return None
        if known.request != request:
            raise AwsError(
                "IdempotentParameterMismatchException",
                "The request was rejected because it contained a client token that was used by "
                "another request.",
            )
        return known.answer

    def keep(self, token: str, request: bytes, answer: bytes, now_s: float) -> None:
        """Remembers an answer."""
        self._answered[token] = Answered(now_s, request, answer)
        self._answered.move_to_end(token)
        if len(self._answered) > _MAX_KEPT:
            self._answered.popitem(last=False)
