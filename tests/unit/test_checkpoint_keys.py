"""Keys are derived from names, and the way back is exact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.errors import KeyInvalid
from checkpoints.keys import (
    CheckpointKey,
    OffsetKey,
    PipelineKey,
    cluster_pk,
    node_of_sk,
    node_sk,
)

PARTS = st.text(min_size=1, max_size=40).filter(lambda text: "#" not in text and "\x00" not in text)
NAMES = st.text("abzAZ09_.:@ é-", min_size=1, max_size=20).filter(
    lambda text: text not in {".", ".."}
)


@pytest.mark.requirement("R11")
def test_keys_look_as_documented() -> None:
    """The texts that other programs find in the table and in the bucket."""
    key = PipelineKey("acme", "prod", "orders")
    assert key.pk == "acme#prod#orders"
    assert OffsetKey("ns", "p1").sk == "offset#ns#p1"
    assert CheckpointKey("last_completed_date").sk == "checkpoint#last_completed_date"
    assert cluster_pk("c1") == "cluster#c1"
    assert node_sk("1234") == "node#1234"
    assert key.segment_key(7) == "acme/prod/orders/segments/00000000000000000007.seg"
    assert key.base_key(7) == "acme/prod/orders/segments/base/00000000000000000007.base.parquet"


@pytest.mark.requirement("R11")
@settings(deadline=None, max_examples=60)
@given(NAMES, NAMES, NAMES, PARTS, PARTS, st.integers(1, 10**20 - 1))
def test_keys_come_back(
    tenant: str, workspace: str, pipeline: str, one: str, two: str, index: int
) -> None:
    """What a key was made of can be read from it, so that no two parts give the same key."""
    key = PipelineKey(tenant, workspace, pipeline)
    assert PipelineKey.of_pk(key.pk) == key
    assert OffsetKey.of_sk(OffsetKey(one, two).sk) == OffsetKey(one, two)
    assert CheckpointKey.of_sk(CheckpointKey(one).sk) == CheckpointKey(one)
    assert node_of_sk(node_sk(one)) == one
    assert key.segment_index(key.segment_key(index)) == index
    assert key.base_index(key.base_key(index)) == index
    assert key.segment_index(key.base_key(index)) is None
    assert key.base_index(key.segment_key(index)) is None


@pytest.mark.requirement("R11")
@pytest.mark.parametrize("bad", ["", "a#b", "#"])
def test_a_separator_in_a_part_is_refused(bad: str) -> None:
    """'#' in any part, or an empty part, is refused and never escaped."""
    for make in (
        lambda: PipelineKey(bad, "w", "p"),
        lambda: PipelineKey("t", bad, "p"),
        lambda: PipelineKey("t", "w", bad),
        lambda: OffsetKey(bad, "p"),
        lambda: OffsetKey("n", bad),
        lambda: CheckpointKey(bad),
        lambda: cluster_pk(bad),
        lambda: node_sk(bad),
    ):
        with pytest.raises(KeyInvalid):
            make()


@pytest.mark.parametrize("bad", ["a/b", "..", ".", "a*", "a?", "${x}", "a\nb", "x" * 600])
def test_a_name_that_means_something_elsewhere_is_refused(bad: str) -> None:
    """'/' would move the prefix, '*' would widen the policy that is printed for it."""
    with pytest.raises(KeyInvalid):
        PipelineKey("t", "w", bad)


@pytest.mark.parametrize("index", [0, -1, 10**20])
def test_an_index_out_of_range_has_no_key(index: int) -> None:
    """Segments count from 1 and have twenty digits, so that their order is that of their names."""
    with pytest.raises(KeyInvalid):
        PipelineKey("t", "w", "p").segment_key(index)


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (PipelineKey.of_pk, "a#b"),
        (PipelineKey.of_pk, "a#b#c#d"),
        (OffsetKey.of_sk, "offset#a"),
        (OffsetKey.of_sk, "other#a#b"),
        (CheckpointKey.of_sk, "lease"),
        (CheckpointKey.of_sk, "checkpoint#"),
        (node_of_sk, "lease"),
    ],
)
def test_another_text_is_no_key(of: object, text: str) -> None:
    """Keys of another kind do not pass for this one."""
    assert callable(of)
    with pytest.raises(KeyInvalid):
        of(text)
