"""What reading a table costs, estimated from what was counted.

Owns the prices and the extrapolation. Pure: counts and monotonic times in, an estimate out. Must
not know where the counts come from.

Reading a stream is billed by the GetRecords call, whether it brings anything or not: so an idle
table has a price too, that of its shards and of how often they are polled. Scans are billed by the
read unit. DescribeStream, GetShardIterator and DescribeTable are not billed. Left out: storage and
writes of other tables, S3, data transfer, and the 2,500,000 GetRecords calls that each account has
free in each region and month, which other readers may have used up.

Source: https://aws.amazon.com/dynamodb/pricing/on-demand/, US East (N. Virginia), Standard table
class, as of 2026-09. Other regions ask more, by 8 % (Seoul) or 14 % (Tokyo) for streams. A table
with provisioned capacity pays for its capacity by the hour and nothing more for a Scan.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

PRICES_OF: Final = "us-east-1, 2026-09"
USD_PER_STREAM_READ: Final = 0.02 / 100_000
USD_PER_READ_UNIT: Final = 0.125 / 1_000_000

DAY_S: Final = 86_400.0
RATE_OVER_S: Final = 3_600.0
LEAST_S: Final = 5.0  # less than this of a process's life says nothing of a day
SAMPLE_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cost:
    """One dataset's.

    get_records_per_day   at the pace of the last hour, or of the process's life
    read_units            that Scan and GetItem spent in the last day, or in the process's life
    """

    get_records_per_day: float
    read_units: float

    @property
    def get_records_usd_per_day(self) -> float:
        return self.get_records_per_day * USD_PER_STREAM_READ

    @property
    def scan_usd_per_day(self) -> float:
        return self.read_units * USD_PER_READ_UNIT

    @property
    def usd_per_day(self) -> float:
        return self.get_records_usd_per_day + self.scan_usd_per_day


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    get_records: float
    read_units: float


class CostMeter:
    """Remembers a day of counts, one sample a minute. One thread calls `saw`."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def saw(self, now_s: float, *, get_records: float, read_units: float) -> Cost | None:
        """The estimate, from counters that only grow; None while there is too little to go by."""
        now = _Sample(now_s, get_records, read_units)
        samples = self._samples
        if not samples or now_s - samples[-1].at_s >= SAMPLE_EVERY_S:
            samples.append(now)
        while len(samples) > 1 and samples[1].at_s <= now_s - DAY_S:
            samples.popleft()
        then = self._since(now_s - RATE_OVER_S)
        span_s = now_s - then.at_s
        if span_s < LEAST_S:
            return None
        # The first sample of a process is taken before anything is read, so nothing is missed.
        return Cost(
            (get_records - then.get_records) / span_s * DAY_S, read_units - samples[0].read_units
        )

    def _since(self, at_s: float) -> _Sample:
        """The last sample that is at least that old, or the first there is."""
        found = self._samples[0]
        for sample in self._samples:
            if sample.at_s > at_s:
                break
            found = sample
        return found
