"""The /v1/status document and what `dynaduck status` draws from it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from connector.cli.status_view import print_status
from connector.health import DatasetState
from connector.reasons import Reason
from connector.surface.status import (
    DatasetStatus,
    GapStatus,
    Readiness,
    ServiceStatus,
    ShardStatus,
    SnapshotStatus,
    rfc3339,
)

AT_MS = 1_767_323_045_678

LAGGING = DatasetStatus(
    name="orders",
    table_name="prod-orders",
    state=DatasetState.LAGGING,
    reasons=(
        Reason("lag", "Shard s-2 is 12 s behind.", "Look for throttling."),
        Reason("dead_letters", "1 record could not be applied.", "Replay it.", blocks=False),
    ),
    rows=1_234_567,
    as_of_ms=AT_MS,
    lag_ms=13_000,
    lag_max_ms=12_000,
    ready_lag_ms=2_000,
    retention_headroom_s=86_000.0,
    shards_active=2,
    snapshot=SnapshotStatus(
        "running", segments_total=8, segments_done=3, items=1000, ratio=0.5, eta_s=90.0
    ),
    shards=(
        ShardStatus("s-1", None, "finished", "SHARD_END", records=10),
        ShardStatus("s-2", "s-1", "reading", "AFTER_SEQUENCE_NUMBER", "123", 5, 12_000, AT_MS),
        ShardStatus("s-3", "s-1", "backoff", "TRIM_HORIZON", error="Rate exceeded"),
    ),
    gaps=(GapStatus("s-0", None, "trimmed", AT_MS),),
    dead_letters=1,
)
READY = replace(LAGGING, name="done", state=DatasetState.READY, reasons=())


def drawn(status: ServiceStatus) -> str:
    out = io.StringIO()
    print_status(status.to_json(), Console(file=out, width=140, color_system=None))
    return out.getvalue()


def test_the_document_is_json() -> None:
    """Only JSON types; the round trip changes nothing."""
    document = ServiceStatus("1.0", (LAGGING, READY), aws_time_ms=AT_MS).to_json()
    assert json.loads(json.dumps(document)) == document


def test_times_are_text_and_durations_are_numbers() -> None:
    """A point in time is RFC 3339 in UTC; what is a span keeps its unit in its name."""
    document = ServiceStatus("1.0", (LAGGING,), aws_time_ms=AT_MS).to_json()
    assert document["aws_time"] == "2026-01-02T03:04:05.678Z"
    assert document["started_at"] is None
    [dataset] = document["datasets"]
    assert dataset["as_of"] == "2026-01-02T03:04:05.678Z"
    assert (dataset["lag_ms"], dataset["lag_max_ms"], dataset["ready_lag_ms"]) == (
        13_000,
        12_000,
        2_000,
    )
    assert dataset["retention_headroom_s"] == 86_000.0
    assert dataset["shards"][1]["covered_until"] == dataset["as_of"]
    assert dataset["shards"][1]["lag_ms"] == 12_000
    assert dataset["gaps"][0]["detected_at"] == dataset["as_of"]


def test_milliseconds_are_not_rounded() -> None:
    """The last digit of a time is the last digit."""
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(999) == "1970-01-01T00:00:00.999Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999Z"


def test_ready_is_all_or_nothing() -> None:
    """One dataset that is not Ready makes the service not ready; none at all too."""
    assert ServiceStatus("1.0", (READY,)).to_json()["ready"] is True
    assert ServiceStatus("1.0", (READY, LAGGING)).to_json()["ready"] is False
    assert ServiceStatus("1.0").to_json()["ready"] is False


def test_reasons_name_dataset_state_and_remedy() -> None:
    """What /v1/ready says of each dataset that is not Ready, and nothing of the others."""
    document = Readiness.of(ServiceStatus("1.0", (READY, LAGGING))).to_json()
    assert [(r["dataset"], r["state"], r["code"], r["blocks"]) for r in document["reasons"]] == [
        ("orders", "Lagging", "lag", True),
        ("orders", "Lagging", "dead_letters", False),
    ]
    assert document["reasons"][0]["remedy"] == "Look for throttling."


def test_the_drawing_shows_what_an_operator_looks_for() -> None:
    """State, reasons with remedies, lag, snapshot, gaps, dead letters, shards as a tree."""
    text = drawn(ServiceStatus("1.0", (LAGGING,)))
    for words in (
        "Lagging",
        "1,234,567",
        "12 s",
        "23.9 h",
        "lag: Shard s-2 is 12 s behind.",
        "Look for throttling.",
        "snapshot running · 50 % · 3 of 8 segments · 1,000 items · 90 s left",
        "gap in s-0: trimmed",
        "1 dead letters",
        "Rate exceeded",
    ):
        assert words in text, words
    lines = [line for line in text.splitlines() if "records" in line]
    assert [line.index("s-") for line in lines] == [
        lines[0].index("s-1"),
        lines[0].index("s-1") + 4,
        lines[0].index("s-1") + 4,
    ]


def test_a_deep_lineage_is_drawn() -> None:
    """A stream that rolled over two thousand times has a tree that deep."""
    shards = tuple(
        ShardStatus(f"s-{n}", f"s-{n - 1}" if n else None, "finished", "SHARD_END")
        for n in range(2_000)
    )
    text = drawn(ServiceStatus("1.0", (replace(READY, shards=shards),)))
    assert "s-0" in text


def test_an_orphan_stands_on_top() -> None:
    """A shard whose parent has left the listing is not lost from the picture."""
    shards = (ShardStatus("s-7", "s-6", "reading", "TRIM_HORIZON"),)
    assert "s-7" in drawn(ServiceStatus("1.0", (replace(READY, shards=shards),)))


def test_markup_in_names_is_text() -> None:
    """A dataset cannot paint the operator's terminal."""
    text = drawn(ServiceStatus("1.0", (replace(LAGGING, name="[bold red]x[/]"),)))
    assert "[bold red]x[/]" in text
