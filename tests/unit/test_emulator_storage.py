"""The items of a table in scan order."""

from __future__ import annotations

import random
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.images import Image, partition_digest, range_position
from emulator.storage import ItemKey, ItemStore


def image(text: str) -> Image:
    return Image(text.encode(), len(text))


def hash_key(number: int) -> ItemKey:
    return (partition_digest({"N": str(number)}),)


@given(
    writes=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=200),
    segments=st.integers(1, 7),
    page_size=st.integers(1, 9),
)
@settings(deadline=None)
def test_segments_and_pages_together_meet_every_item_once(
    writes: list[tuple[int, bool]], segments: int, page_size: int
) -> None:
    """Whatever was put and removed, the pages of all segments hold each item exactly once."""
    store = ItemStore()
    model: dict[int, Image] = {}
    for number, is_put in writes:
        if is_put:
            assert store.put(hash_key(number), image(str(number))) == model.get(number)
            model[number] = image(str(number))
        else:
            assert store.remove(hash_key(number)) == model.pop(number, None)
    met: list[bytes] = []
    for segment in range(segments):
        after: ItemKey | None = None
        while True:
            page = []
            for key, found in store.walk(after, segment, segments):
                page.append((key, found.raw))
                if len(page) == page_size:
                    break
            met += [raw for _, raw in page]
            if len(page) < page_size:
                break
            after = page[-1][0]
    assert sorted(met) == sorted(found.raw for found in model.values())
    assert len(store) == len(model)


def test_segments_narrower_than_any_internal_division_still_meet_every_item_once() -> None:
    """A table may be scanned in up to a million segments, most of them empty."""
    store = ItemStore()
    for number in range(200):
        store.put(hash_key(number), image(str(number)))
    met = [found.raw for segment in range(9_999) for _, found in store.walk(None, segment, 9_999)]
    assert sorted(met) == sorted(str(number).encode() for number in range(200))


def test_a_walk_resumes_after_a_key_that_is_gone() -> None:
    """The start key of a page need not exist any more."""
    store = ItemStore()
    for number in range(50):
        store.put(hash_key(number), image(str(number)))
    keys = [key for key, _ in store.walk()]
    store.remove(keys[20])
    assert [key for key, _ in store.walk(keys[20])] == keys[21:]


def test_one_partition_is_walked_in_the_order_of_its_sort_keys() -> None:
    """Numbers order by value, text by UTF-8 bytes, binary by unsigned bytes."""
    digest = partition_digest({"S": "p"})
    for values, kind in (
        (["-10", "-9.5", "0", "2", "10"], "N"),
        (["A", "a", "ab", "z", "é", "\U0001f600"], "S"),
        (["AA==", "AQ==", "/w=="], "B"),
    ):
        store = ItemStore()
        shuffled = list(values)
        random.Random(1).shuffle(shuffled)
        for value in shuffled:
            store.put((digest, range_position({kind: value})), image(value))
        store.put((partition_digest({"S": "other"}), range_position({kind: values[0]})), image("?"))
        assert [found.raw.decode() for _, found in store.partition(digest)] == values


def test_a_number_as_sort_key_is_exact() -> None:
    """38 digits order and compare without a float between them."""
    assert range_position({"N": "1" * 37 + "1"}) < range_position({"N": "1" * 37 + "2"})
    assert range_position({"N": "0.1"}) == Decimal("0.1")
