"""Durations and sizes in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config.durations import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("250ms", 0.25),
        ("2s", 2.0),
        ("10m", 600.0),
        ("18h", 64_800.0),
        ("30d", 2_592_000.0),
        ("1.5s", 1.5),
        ("1h30m", 5_400.0),
        (" 2s ", 2.0),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    """Each number of a duration has a unit, and they add up."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "2", "s", "2 s", "2x", "2s3", "-2s", "1e3s", "2S", "two", "2s,3s", "٢s", ".5s"],
)
def test_anything_else_is_no_duration(text: str) -> None:
    """A number without its unit, another unit, a sign or another alphabet is refused."""
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_reads_back(milliseconds: int) -> None:
    """What is shown for a duration reads back as the same duration."""
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1GB", 10**9),
        ("400MB", 400 * 10**6),
        ("512MiB", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("7B", 7),
        ("1 kb", 1000),
    ],
)
def test_a_size_is_decimal_without_the_i(text: str, size_bytes: int) -> None:
    """MB is 10^6 bytes and MiB 2^20, as DuckDB reads them."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "1", "GB", "1XB", "-1GB", "1GBB", "0.5B", "1.2.3GB"])
def test_anything_else_is_no_size(text: str) -> None:
    """A number without unit, another unit or a part of a byte is refused."""
    with pytest.raises(ValueError, match="not a"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=10**14))
def test_a_size_reads_back(size_bytes: int) -> None:
    """What is shown for a size reads back as the same number."""
    assert parse_size(format_size(size_bytes)) == size_bytes
