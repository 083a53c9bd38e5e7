"""How fresh an answer must be, as clients say it: `min_time` and `max_staleness`.

`min_time` is the Date header of the write that the client wants to see, or RFC 3339. A Date has
whole seconds and the write happened within that second, so a time without a fraction counts to
its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from accelerator.query import Demand
from accelerator.query_errors import QueryFailed
from connector.config.durations import parse_duration
from connector.errors import ConfigError

_LATEST_MS = 253_402_300_799_000


def parse_demand(given: Mapping[str, str]) -> Demand:
    """Of a query string: `min_time`, `max_staleness` and `wait`, each optional.

    Raises:
        QueryFailed: one of them cannot be read
    """
    staleness_s = _duration(given, "max_staleness")
    return Demand(
        min_as_of_ms=None if "min_time" not in given else _min_as_of_ms(given["min_time"]),
        max_staleness_ms=None if staleness_s is None else int(staleness_s * 1000),
        wait_s=_duration(given, "wait"),
    )


def _duration(given: Mapping[str, str], name: str) -> float | None:
    if name not in given:
        return None
    try:
        return parse_duration(given[name])
    except (ConfigError, ValueError) as error:
        raise QueryFailed(
            f"{name} is no duration: {error}", hint="Write 500ms, 2s or 1m."
        ) from error


def _min_as_of_ms(text: str) -> int:
    moment = _moment(text.strip())
    if moment is None:
        raise QueryFailed(
            f"min_time is no time: {text[:80]!r}.",
            hint="Give the Date header of your write, or RFC 3339 such as 2026-01-02T03:04:05Z.",
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at_ms = int(moment.timestamp() * 1000)
    return min(at_ms + 1000 if moment.microsecond == 0 else at_ms, _LATEST_MS)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
