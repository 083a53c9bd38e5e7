"""One append under every outcome that an object store can have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import checkpoints
from checkpoints.commit import Committed, committed_in_database
from checkpoints.errors import AppendPending, BaseNeeded, Fenced, LogCorrupt, StoreDenied
from checkpoints.object_store import MemoryObjectStore, PutOutcome
from checkpoints.segment import SegmentHeader, SegmentKind
from checkpoints.segment_log import GENESIS, SegmentWriter
from tests.doubles import (
    PIPELINE,
    FakeClock,
    Outcome,
    ScriptedObjectStore,
    TextCodec,
    delta,
    guard_of,
    leader_of,
    log_of,
    texts,
    writer_of,
)

CHANGES = SegmentKind.CHANGES
CLAIMED = Outcome.APPLIED
ROOT = Path(checkpoints.__file__).parents[1]


def append(writer: SegmentWriter[str], text: str) -> Committed:
    return writer.append(CHANGES, "orders", text, delta())


@pytest.mark.parametrize(
    "script",
    [
        [Outcome.APPLIED],
        [Outcome.APPLIED_LOST_RESPONSE],
        [Outcome.NEVER_LANDED],
        [Outcome.CONFLICT_409],
        [Outcome.IN_FLIGHT],
        [Outcome.NEVER_LANDED, Outcome.CONFLICT_409, Outcome.APPLIED_LOST_RESPONSE],
        [Outcome.NEVER_LANDED] * 7,
    ],
)
@pytest.mark.requirement("R29")
def test_an_append_is_committed_once_whatever_the_answers(script: list[Outcome]) -> None:
    """However often the PUT is repeated: one index, the same bytes, one segment."""
    store = ScriptedObjectStore(MemoryObjectStore(), CLAIMED, *script)
    writer = leader_of(store, FakeClock())
    assert append(writer, "one") == Committed(1, 2)
    store.deliver()
    assert append(writer, "two") == Committed(1, 3)
    assert texts(store) == ["one", "two"]
    assert len({data for key, data in store.puts if key == PIPELINE.segment_key(2)}) == 1


def test_a_put_that_is_heard_of_is_not_read_back() -> None:
    """An append whose PUT is answered costs one request."""
    store = ScriptedObjectStore(MemoryObjectStore())
    writer = leader_of(store, FakeClock())
    store.gets.clear()
    append(writer, "one")
    assert store.gets == []


def test_a_write_in_flight_that_lands_between_is_found() -> None:
    """It was not there at the GET, landed before the repetition, and answers that with 412."""
    store, clock = ScriptedObjectStore(MemoryObjectStore(), CLAIMED, Outcome.IN_FLIGHT), FakeClock()
    writer = leader_of(store, clock)
    landed: list[PutOutcome] = []
    clock.on_sleep = lambda: landed.extend(store.deliver())
    assert append(writer, "one") == Committed(1, 2)
    assert landed == [PutOutcome.CREATED]
    assert texts(store) == ["one"]


def test_reads_that_fail_leave_it_open_until_they_answer() -> None:
    """A GET that fails proves nothing: the same PUT is sent again."""
    store = ScriptedObjectStore(MemoryObjectStore(), CLAIMED, Outcome.APPLIED_LOST_RESPONSE)
    writer = leader_of(store, FakeClock())
    store.failing_reads = 3
    assert append(writer, "one") == Committed(1, 2)
    assert texts(store) == ["one"]


@pytest.mark.requirement("R20")
@pytest.mark.parametrize("outcome", [Outcome.NEVER_LANDED, Outcome.IN_FLIGHT])
def test_doubt_that_outlasts_the_lease_fences(outcome: Outcome) -> None:
    """The index never advances on doubt: at the deadline the writer is fenced, not acknowledged."""
    clock = FakeClock()
    store = ScriptedObjectStore(MemoryObjectStore(), CLAIMED, *[outcome] * 1000)
    writer = writer_of(store, clock, guard_of(clock, 1, lasts_s=25))
    writer.claim()
    with pytest.raises(Fenced):
        append(writer, "one")
    assert clock.now_s == 1025
    with pytest.raises(Fenced):
        writer.settle()


@pytest.mark.requirement("R20")
def test_nothing_is_sent_after_the_deadline() -> None:
    """An expired lease is seen before the PUT."""
    clock = FakeClock()
    store = ScriptedObjectStore(MemoryObjectStore())
    writer = writer_of(store, clock, guard_of(clock, 1, lasts_s=25))
    writer.claim()
    clock.advance(25)
    sent = len(store.puts)
    with pytest.raises(Fenced):
        append(writer, "one")
    assert len(store.puts) == sent


@pytest.mark.requirement("R20")
def test_a_lease_that_ends_during_the_put_is_not_acknowledged() -> None:
    """The guard is asked after the PUT too: what landed may stand, but nobody here builds on it."""
    clock = FakeClock()

    class SlowStore(ScriptedObjectStore):
        def put_new(self, key: str, data: bytes) -> PutOutcome:
            outcome = super().put_new(key, data)
            clock.advance(13)
            return outcome

    store = SlowStore(MemoryObjectStore())
    writer = writer_of(store, clock, guard_of(clock, 1, lasts_s=25))
    writer.claim()
    tip = writer.head.tip
    with pytest.raises(Fenced):
        append(writer, "one")
    assert writer.head.tip == tip
    assert texts(store) == ["one"]


def test_a_definite_refusal_keeps_the_segment_for_later() -> None:
    """The caller hears the refusal, and settles the very same bytes once it is mended."""
    store = ScriptedObjectStore(
        MemoryObjectStore(), CLAIMED, Outcome.APPLIED_LOST_RESPONSE, Outcome.DEFINITE
    )
    writer = leader_of(store, FakeClock())
    store.failing_reads = 1
    with pytest.raises(StoreDenied):
        append(writer, "one")
    with pytest.raises(AppendPending):
        append(writer, "other")
    assert writer.settle() == Committed(1, 2)
    assert append(writer, "two") == Committed(1, 3)
    assert texts(store) == ["one", "two"]


def test_there_is_nothing_to_settle_after_an_append() -> None:
    """A settled append is settled once."""
    writer = leader_of(MemoryObjectStore(), FakeClock())
    append(writer, "one")
    with pytest.raises(AppendPending):
        writer.settle()


@pytest.mark.requirement("R20")
def test_a_zombie_in_flight_is_harmless_either_way() -> None:
    """Its late PUT meets the fence; or it comes before the fence, and the new leader applies it."""
    clock = FakeClock()
    store = ScriptedObjectStore(MemoryObjectStore())
    old = writer_of(store, clock, guard_of(clock, 1, lasts_s=25), node="old")
    old.claim()
    store.script.extend([Outcome.IN_FLIGHT] * 50)
    with pytest.raises(Fenced):
        append(old, "zombie")
    store.script.clear()
    new = leader_of(store, clock, epoch=2, node="new")
    append(new, "two")
    assert set(store.deliver()) == {PutOutcome.EXISTS}
    assert texts(store) == ["two"]


def test_a_write_below_an_expired_index_deceives_nobody() -> None:
    """A leader that slept until its index had expired writes into the void: a reader goes to the
    base instead of applying what it finds there.
    """
    clock, store = FakeClock(), MemoryObjectStore()
    old = leader_of(store, clock, epoch=1, node="old")
    follower_tip = old.head.tip
    new = leader_of(store, clock, epoch=2, node="new")
    append(new, "two")
    assert log_of(store).publish_base(new.head, "whole")
    append(new, "three")
    for index in (1, 2, 3):
        store.expire(PIPELINE.segment_key(index))
    assert append(old, "zombie") == Committed(1, 2)  # its clock slept too: nothing stopped it
    with pytest.raises(BaseNeeded) as needed:
        list(log_of(store).after(follower_tip))
    assert needed.value.index == 3
    assert log_of(store).head() == new.head
    after_base = log_of(store).after(log_of(store).base(3).tip)
    assert [TextCodec().text(segment.data) for segment in after_base] == ["three"]


def test_a_hole_without_a_base_is_corruption() -> None:
    """What is missing and in no base is lost, and nothing after it is applied."""
    store = MemoryObjectStore()
    writer = leader_of(store, FakeClock())
    append(writer, "one")
    append(writer, "two")
    store.expire(PIPELINE.segment_key(2))
    with pytest.raises(LogCorrupt):
        list(log_of(store).after(GENESIS))


def test_a_hole_above_the_newest_base_is_corruption() -> None:
    """A base helps only with what it holds."""
    store = MemoryObjectStore()
    writer = leader_of(store, FakeClock())
    assert log_of(store).publish_base(writer.head, "whole")
    append(writer, "one")
    append(writer, "two")
    store.expire(PIPELINE.segment_key(2))
    with pytest.raises(LogCorrupt):
        list(log_of(store).after(log_of(store).base(1).tip))
    with pytest.raises(LogCorrupt):
        log_of(store).head()


def test_segments_written_while_a_listing_runs_are_no_hole() -> None:
    """A listing need not be a snapshot: what it left out is looked for before it is called lost."""
    store = MemoryObjectStore()
    writer = leader_of(store, FakeClock())
    for text in ("one", "two", "three"):
        append(writer, text)

    class LaggingStore(ScriptedObjectStore):
        def list_after(self, prefix: str, start_after: str | None, limit: int) -> list[str]:
            left_out = {PIPELINE.segment_key(2), PIPELINE.segment_key(3)}
            keys = super().list_after(prefix, start_after, limit)
            return [key for key in keys if key not in left_out]

    assert texts(store, log_of(LaggingStore(store))) == ["one", "two", "three"]


def test_a_changed_segment_is_seen() -> None:
    """Bytes that were altered after the next segment was written break the chain."""
    store = MemoryObjectStore()
    writer = leader_of(store, FakeClock())
    append(writer, "one")
    append(writer, "two")
    data = store.get(PIPELINE.segment_key(2))
    assert data is not None
    store.expire(PIPELINE.segment_key(2))
    store.put_new(PIPELINE.segment_key(2), data.replace(b"\none", b"\nONE"))
    with pytest.raises(LogCorrupt):
        list(log_of(store).after(GENESIS))


def test_an_unknown_format_is_refused_with_its_remedy() -> None:
    """A segment of a later program is not guessed at."""
    header = SegmentHeader("p", 1, 1, "w", "0" * 64, CHANGES)
    text = header.to_json()
    assert SegmentHeader.of_json(text) == header
    with pytest.raises(LogCorrupt, match="format 2") as error:
        SegmentHeader.of_json(text.replace('"format": 1', '"format": 2'))
    assert "version" in error.value.hint
    for rubbish in ("", "{}", "[]", "null", text.replace("changes", "other")):
        with pytest.raises(LogCorrupt):
            SegmentHeader.of_json(rubbish)


@pytest.mark.requirement("R9")
def test_only_the_log_proves_a_commit() -> None:
    """Rows take a `Committed`, and outside of tests only the log makes one from what is durable."""
    makers = set()
    for package in ("checkpoints", "accelerator", "connector"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Committed"):
                    makers.add(f"{package}/{path.name}")
    # offsets.py reads back the proof that a row was written with.
    assert makers == {
        "checkpoints/commit.py",
        "checkpoints/segment_log.py",
        "checkpoints/offsets.py",
    }
    assert committed_in_database(7) == Committed(0, 7)


@pytest.mark.requirement("R9")
def test_nothing_proves_a_commit_before_the_first_segment() -> None:
    """The genesis is no commit, and a failed append gives none."""
    with pytest.raises(ValueError, match="before the first"):
        _ = GENESIS.committed
