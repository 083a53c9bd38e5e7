"""Durations and sizes as people write them: `250ms`, `2s`, `10m`, `18h`; `400MB`, `1GB`.

Owns the two notations in both directions. Knows no setting.
"""

from __future__ import annotations

import re
from decimal import Decimal

_DURATION_UNITS_S = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
# As DuckDB reads them: decimal without the i, binary with it.
_SIZE_UNITS_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_DURATION_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([A-Za-z]{1,3})", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of `2s`, `250ms` or a sum such as `1h30m`; a number needs its unit.

    Raises: ValueError.
    """
    compact = text.strip()
    position, total_s = 0, Decimal(0)
    while part := _DURATION_PART.match(compact, position):
        total_s += Decimal(part[1]) * _DURATION_UNITS_S[part[2]]
        position = part.end()
    if position == 0 or position != len(compact):
        raise ValueError(f"{text!r} is not a duration")
    return float(total_s)


def format_duration(seconds: float) -> str:
    """The shortest text with one unit that `parse_duration` reads back as the same value."""
    exact = Decimal(repr(seconds))
    for unit in ("d", "h", "m", "s"):
        count = exact / _DURATION_UNITS_S[unit]
        if count == count.to_integral_value() and (count or unit == "s"):
            return f"{int(count)}{unit}"
    return f"{(exact / _DURATION_UNITS_S['ms']).normalize():f}ms"


def parse_size(text: str) -> int:
    """Bytes of `400MB`, `1GB` (decimal) or `512MiB` (binary).

    Raises: ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS_BYTES.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a size")
    size_bytes = Decimal(match[1]) * unit
    if size_bytes != size_bytes.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size_bytes)


def format_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` reads back as the same number."""
    for unit, name in (("TB", "TB"), ("GB", "GB"), ("MB", "MB"), ("KB", "KB")):
        if size_bytes and size_bytes % _SIZE_UNITS_BYTES[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS_BYTES[unit]}{name}"
    for unit, name in (("TIB", "TiB"), ("GIB", "GiB"), ("MIB", "MiB"), ("KIB", "KiB")):
        if size_bytes and size_bytes % _SIZE_UNITS_BYTES[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS_BYTES[unit]}{name}"
    return f"{size_bytes}B"
