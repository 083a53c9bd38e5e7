"""The estimate of what reading costs a day, from counters and times."""

from __future__ import annotations

import pytest

from connector.cost import Cost, CostMeter

HOUR_S = 3_600.0


def told(meter: CostMeter, *counts: tuple[float, float, float]) -> Cost | None:
    """What is estimated after the last of (time, GetRecords calls, read units)."""
    cost = None
    for at_s, calls, units in counts:
        cost = meter.saw(at_s, get_records=calls, read_units=units)
    return cost


def test_a_million_calls_a_day_cost_twenty_cents() -> None:
    """The price of a GetRecords call, at the pace that was seen."""
    pace = 1_000_000 / 86_400
    cost = told(CostMeter(), (0.0, 0, 0), (60.0, 60 * pace, 0))
    assert cost is not None
    assert cost.get_records_per_day == pytest.approx(1_000_000)
    assert cost.usd_per_day == pytest.approx(0.20)


def test_a_scan_costs_what_it_spent_however_fast_it_was() -> None:
    """A scan of a minute is not sixty times that a day: units are summed, not extrapolated."""
    cost = told(CostMeter(), (0.0, 0, 0), (60.0, 0, 8_000_000), (120.0, 0, 8_000_000))
    assert cost is not None
    assert cost.scan_usd_per_day == pytest.approx(1.0)
    later = told(CostMeter(), (0.0, 0, 0), (60.0, 0, 8_000_000), (20 * HOUR_S, 0, 8_000_000))
    assert later is not None
    assert later.scan_usd_per_day == pytest.approx(1.0)


def test_a_first_look_estimates_nothing() -> None:
    """Seconds say nothing of a day."""
    assert told(CostMeter(), (0.0, 0, 0)) is None
    assert told(CostMeter(), (0.0, 0, 0), (4.0, 100, 0)) is None


def test_the_pace_is_that_of_the_last_hour() -> None:
    """A busy morning is forgotten by the evening; what a scan spent is, after a day."""
    meter = CostMeter()
    calls = 0.0
    for minute in range(26 * 60):
        calls += 6_000 if minute < 60 else 60
        units = 500.0 if minute >= 1 else 0.0
        cost = meter.saw(minute * 60.0, get_records=calls, read_units=units)
        if minute == 12 * 60:
            assert cost is not None
            assert cost.get_records_per_day == pytest.approx(86_400)
            assert cost.read_units == 500.0
    assert cost is not None
    assert cost.get_records_per_day == pytest.approx(86_400)
    assert cost.read_units == 0.0


def test_it_remembers_no_more_than_a_day() -> None:
    """One sample a minute, however often it is told."""
    meter = CostMeter()
    for look in range(15_000):
        meter.saw(look * 10.0, get_records=look, read_units=0)
    assert len(meter._samples) <= 24 * 60 + 2
