"""The cut against a plain JSON parser as its model, over bodies of any content."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from connector.aws.wire import cut_records, cut_scan
from connector.errors import CorruptPage, ViewTypeUnusable
from tests.unit.wire_bodies import compact, record

# Lone surrogates cannot be written as UTF-8; the wire can only carry them escaped.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False).map(str)
SCALARS = st.one_of(
    TEXTS.map(lambda text: {"S": text}),
    NUMBERS.map(lambda text: {"N": text}),
    st.sampled_from([{"NULL": True}, {"BOOL": False}, {"B": "AAE="}, {"SS": ["a", "]}"]}]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: {"L": items}),
        st.dictionaries(TEXTS, inner, max_size=3).map(lambda items: {"M": items}),
    ),
    max_leaves=6,
)
# The names of the envelope are legal names of attributes too.
NAMES = st.one_of(
    TEXTS,
    st.sampled_from(["Keys", "NewImage", "OldImage", "Records", "dynamodb", "SequenceNumber"]),
)
IMAGES = st.dictionaries(NAMES, VALUES, max_size=4)
ITEMS = IMAGES.filter(bool)  # every item has its key


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["INSERT", "MODIFY", "REMOVE"]))
    return record(
        name,
        number=draw(st.integers(0, 10**40 - 1)),
        keys=draw(ITEMS),
        new=None if name == "REMOVE" else draw(IMAGES),
        old=None if name == "INSERT" else draw(st.one_of(st.none(), IMAGES)),
        created=draw(st.one_of(st.none(), st.integers(0, 2**33))),
    )


def written(page: dict[str, Any], *, ascii_only: bool, indent: int | None) -> bytes:
    separators = (",", ":") if indent is None else None
    text = json.dumps(page, ensure_ascii=ascii_only, separators=separators, indent=indent)
    return text.encode()


@given(
    st.lists(records(), max_size=5),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0, 3]),
)
@settings(max_examples=200, deadline=None)
def test_what_is_cut_parses_to_what_was_written(
    made: list[dict[str, Any]], old_images: bool, ascii_only: bool, indent: int | None
) -> None:
    """Keys, images, numbers and order survive any text, any escape and any whitespace."""
    body = written(
        {"Records": made, "NextShardIterator": "n"}, ascii_only=ascii_only, indent=indent
    )

    page = cut_records(body, "s", at_ms=0, old_images=old_images)

    page.changes.validate(full=True)
    rows = page.changes.to_pylist()
    assert len(rows) == len(made)
    for row, source in zip(rows, made, strict=True):
        change = source["dynamodb"]
        assert json.loads(row["keys"]) == change["Keys"]
        assert row["sequence_number"] == change["SequenceNumber"]
        assert row["op"] == source["eventName"].lower()
        assert _loads(row["image"]) == change.get("NewImage")
        assert _loads(row["old_image"]) == (change.get("OldImage") if old_images else None)
    times = [change["dynamodb"].get("ApproximateCreationDateTime") for change in made]
    known = [seconds * 1000 for seconds in times if seconds is not None]
    assert page.newest_created_ms == (max(known) if known else None)
    assert page.last_sequence_number == (rows[-1]["sequence_number"] if rows else None)


@given(st.lists(ITEMS, max_size=5), st.one_of(st.none(), ITEMS), st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_scanned_parses_to_what_was_written(
    items: list[dict[str, Any]], last: dict[str, Any] | None, loose: bool
) -> None:
    """Items and the last evaluated key survive any text; a compact body verbatim."""
    page: dict[str, Any] = {"Items": items, "Count": len(items)}
    if last is not None:
        page["LastEvaluatedKey"] = last

    cut = cut_scan(
        written(page, ascii_only=False, indent=1 if loose else None), at_ms=0, consistent=True
    )

    assert cut.changes["image"].to_pylist() == [compact(item).decode() for item in items]
    assert cut.last_evaluated_key == (None if last is None else compact(last).decode())


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(0, 255))
@example(b"", 0, 0)
@settings(max_examples=300, deadline=None)
def test_damage_is_corrupt_or_harmless_and_never_another_error(
    noise: bytes, at: int, value: int
) -> None:
    """Whatever bytes come, the cut gives a valid table or says what is wrong with them."""
    whole = compact({"Records": [record("REMOVE"), record(new={"a": {"S": "é"}})]})
    damaged = bytearray(whole)
    damaged[at % len(whole)] = value
    for body in (noise, bytes(damaged), whole[: at % len(whole)] + noise):
        for cut in (_cut_as_records, _cut_as_scan):
            try:
                changes = cut(body)
            except (CorruptPage, ViewTypeUnusable):
                continue
            changes.validate(full=True)


@given(st.integers(1, 6), st.sampled_from(["x", "é", "😀", '"', "\\", "\x00"]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.large_base_example])
def test_a_page_of_a_megabyte_survives(count: int, character: str) -> None:
    """Items of 400 KB and pages past 1 MB are cut like any other."""
    image = {"pk": {"S": "k"}, "v": {"S": character * (400_000 // len(character.encode()))}}

    page = cut_records(compact({"Records": [record(new=image)] * count}), "s", at_ms=0)

    assert page.changes["image"].to_pylist() == [compact(image).decode()] * count


def _loads(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _cut_as_records(body: bytes) -> Any:
    return cut_records(body, "s", at_ms=0, old_images=True).changes


def _cut_as_scan(body: bytes) -> Any:
    return cut_scan(body, at_ms=0, consistent=True).changes
