"""Two writers of one row, and a table that loses answers."""

from __future__ import annotations

import pytest

from checkpoints.commit import Committed
from checkpoints.envelope import OffsetValue
from checkpoints.errors import StoreThrottled, StoreUnavailable
from checkpoints.keys import OffsetKey
from checkpoints.offsets import MAX_TURNS, OffsetStore, Published
from tests.doubles import PIPELINE, Outcome, ScriptedItemStore

KEY = OffsetKey("orders", "shard-1")


def row_after(items: ScriptedItemStore) -> tuple[OffsetValue | None, Committed]:
    offsets = OffsetStore(items.inner, PIPELINE)
    row = offsets.row(KEY.sk)
    assert row is not None
    return offsets.offset(KEY), row.committed


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("starts_empty", [True, False])
@pytest.mark.parametrize(
    ("other", "outcome", "stands"),
    [
        ((1, 2), Published.WRITTEN, (1, 3)),
        ((1, 4), Published.SUPERSEDED, (1, 4)),
        ((2, 4), Published.SUPERSEDED, (2, 4)),
    ],
)
def test_a_row_that_changes_between_read_and_write_is_read_again(
    starts_empty: bool, other: tuple[int, int], outcome: Published, stands: tuple[int, int]
) -> None:
    """The write is conditional on the very tuple that was merged with, epoch, index and hash."""
    items = ScriptedItemStore()
    offsets = OffsetStore(items, PIPELINE)
    if not starts_empty:
        offsets.publish_offset(Committed(1, 1), KEY, OffsetValue(line=1))

    def races() -> None:
        items.before_write = lambda: None
        rival = OffsetStore(items.inner, PIPELINE)
        rival.publish_offset(Committed(*other), KEY, OffsetValue(filesize=50, line=2))

    items.before_write = races
    assert offsets.publish_offset(Committed(1, 3), KEY, OffsetValue(line=3)) is outcome
    line = 3 if outcome is Published.WRITTEN else 2
    assert row_after(items) == (OffsetValue(filesize=50, line=line), Committed(*stands))


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("landed", [Outcome.APPLIED_LOST_RESPONSE, Outcome.NEVER_LANDED])
def test_a_publication_whose_answer_was_lost_is_repeated(landed: Outcome) -> None:
    """Whether it landed or not, publishing again ends with the same row."""
    items = ScriptedItemStore(None, Outcome.APPLIED, landed)
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(Committed(1, 1), KEY, OffsetValue(filesize=9))
    with pytest.raises(StoreUnavailable):
        offsets.publish_offset(Committed(1, 2), KEY, OffsetValue(line=2))
    offsets.publish_offset(Committed(1, 2), KEY, OffsetValue(line=2))
    assert row_after(items) == (OffsetValue(9, 2), Committed(1, 2))


def test_a_row_that_never_stands_still_is_given_up_for_now() -> None:
    """A publication takes a bounded number of turns, then tells its caller to come back."""
    items = ScriptedItemStore()
    rival = OffsetStore(items.inner, PIPELINE)
    index = iter(range(1, 100))
    items.before_write = lambda: rival.publish_offset(
        Committed(1, next(index)), KEY, OffsetValue(line=1)
    )
    with pytest.raises(StoreThrottled):
        OffsetStore(items, PIPELINE).publish_offset(Committed(2, 1), KEY, OffsetValue(line=2))
    assert items.calls.count("put") == MAX_TURNS


@pytest.mark.requirement("R7")
def test_a_deleted_row_comes_back_by_publishing_again() -> None:
    """Nothing depends on a row being there: after its loss the next publication writes it anew."""
    items = ScriptedItemStore()
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(Committed(1, 1), KEY, OffsetValue(line=1))
    assert items.delete(PIPELINE.pk, KEY.sk, {"wal_epoch": 1})
    assert offsets.offset(KEY) is None
    assert offsets.publish_offset(Committed(1, 1), KEY, OffsetValue(line=1)) is Published.WRITTEN
    assert row_after(items) == (OffsetValue(line=1), Committed(1, 1))
