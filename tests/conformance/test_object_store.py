"""What every ObjectStore does, in memory and on S3."""

from __future__ import annotations

import pytest

from checkpoints.object_store import ObjectStore, PutOutcome


def test_an_object_is_made_once(objects: ObjectStore) -> None:
    """The second writer of a key is told so, and the first one's bytes stay."""
    assert objects.get("p/1") is None
    assert objects.put_new("p/1", b"one\x00\xff") is PutOutcome.CREATED
    assert objects.put_new("p/1", b"other") is PutOutcome.EXISTS
    assert objects.put_new("p/1", b"one\x00\xff") is PutOutcome.EXISTS
    assert objects.get("p/1") == b"one\x00\xff"


def test_an_empty_object_is_one(objects: ObjectStore) -> None:
    """No bytes are not the same as no object."""
    assert objects.put_new("p/1", b"") is PutOutcome.CREATED
    assert objects.get("p/1") == b""


@pytest.mark.parametrize(
    ("prefix", "after", "limit", "expected"),
    [
        ("p/", None, 1000, ["p/1", "p/2", "p/3", "p/z"]),
        ("p/", "p/1", 1000, ["p/2", "p/3", "p/z"]),
        ("p/", "p/2x", 1000, ["p/3", "p/z"]),
        ("p/", "p/z", 1000, []),
        ("p/", None, 2, ["p/1", "p/2"]),
        ("p/", "p/3", 2, ["p/z"]),
        ("p/base/", None, 10, ["p/base/7"]),
        ("none/", None, 10, []),
    ],
)
def test_a_listing_is_ordered_and_flat(
    objects: ObjectStore, prefix: str, after: str | None, limit: int, expected: list[str]
) -> None:
    """Keys directly below the prefix, after a key that need not exist, up to the limit."""
    for key in ("p/3", "p/1", "p/z", "p/2", "p/base/7", "q/1"):
        objects.put_new(key, b"")
    assert objects.list_after(prefix, after, limit) == expected


def test_a_short_listing_is_the_end(objects: ObjectStore) -> None:
    """Fewer keys than the limit come only when there are no more, whatever lies deeper."""
    for number in range(7):
        objects.put_new(f"p/{number}", b"")
        objects.put_new(f"p/{number}deep/x", b"")
    assert objects.list_after("p/", None, 5) == [f"p/{n}" for n in range(5)]
    assert objects.list_after("p/", "p/4", 5) == ["p/5", "p/6"]
