"""The emulator's clocks: every time the emulator shows or decides by comes from one of these.

Owns the reading of time in seconds since the epoch. Must not know what the time is used for.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Protocol


class Clock(Protocol):
    """Tells the time the emulated AWS believes in."""

    def now_s(self) -> float:
        """Seconds since the epoch."""
        ...

    def advance(self, seconds: float) -> None:
        """Moves the time forward at once."""
        ...


class SystemClock:
    """The machine's time plus what it was advanced by."""

    def __init__(self, offset_s: float = 0.0) -> None:
        self._offset_s = offset_s
        self._lock = threading.Lock()

    def now_s(self) -> float:
        return time.time() + self._offset_s

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._offset_s += seconds


class ManualClock:
    """A time that stands still until somebody moves it."""

    def __init__(self, start_s: float = 1_750_000_000.0) -> None:
        self._now_s = start_s
        self._lock = threading.Lock()

    def now_s(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now_s += seconds

    def set(self, now_s: float) -> None:
        """Sets the time; backwards is allowed, as clocks are corrected in life too."""
        with self._lock:
            self._now_s = now_s


def http_date(now_s: float) -> str:
    """The `Date` header's form of a time: whole seconds, GMT."""
    return formatdate(int(now_s), usegmt=True)


def naive_utc(now_s: float) -> datetime:
    """A time as moto's models keep it: naive, in UTC."""
    return datetime.fromtimestamp(now_s, UTC).replace(tzinfo=None)


def stream_label(now_s: float) -> str:
    """A time as the label of a stream, such as `2015-05-11T21:21:33.291`."""
    return naive_utc(now_s).isoformat(timespec="milliseconds")


def epoch_number(seconds: float) -> bytes:
    """A timestamp as DynamoDB's JSON shows it: a number with a decimal exponent (`1.75E9`)."""
    whole = int(seconds)
    millis = round((seconds - whole) * 1000)
    if millis == 1000:
        whole, millis = whole + 1, 0
    digits = str(whole)
    exponent = len(digits) - 1
    fraction = (digits[1:] + (f"{millis:03d}" if millis else "")).rstrip("0") or "0"
    return f"{digits[0]}.{fraction}E{exponent}".encode()
