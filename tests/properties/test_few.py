"""The short way for small groups says what the SQL decoder says, or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerator.choice import Choice
from accelerator.few import FewRow, decode_few
from accelerator.fitting import Fitted, Fitter
from accelerator.schema import Plan, Seen, grow, initial
from accelerator.statements import Prepared
from tests.properties.test_dataset_types import ITEMS
from tests.random_items import STEADY, Items

SOURCE = pa.schema(
    [("i", pa.int64()), ("h", pa.uint64()), ("k", pa.string()), ("image", pa.string())]
)


def rows_of(items: list[dict[str, Any]]) -> list[FewRow]:
    return [FewRow(n, n, f"k{n}", compact(item)) for n, item in enumerate(items)]


def compact(item: object) -> str:
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False)


def fitted_by_sql(rows: list[FewRow], base: Plan) -> Fitted:
    """The long way, which grows the plan as it goes."""

    def grown(plan: Plan, seen: Mapping[str, Seen]) -> Plan:
        return grow(plan, seen, room=1000, integer_digits=lambda _: 0, now_ms=0)

    with duckdb.connect() as cursor:
        cursor.register("rows_given", pa.Table.from_pylist([r._asdict() for r in rows], SOURCE))
        prepared = Prepared(cursor)
        fitter = Fitter(cursor, lambda: "rows_given", lambda n: rows[n].image, prepared)
        return fitter.fit(base, grown)


def by_number(rows: pa.Table) -> dict[int, dict[str, Any]]:
    return {row["i"]: row for row in rows.to_pylist()}


def taken_alike(items: list[dict[str, Any]]) -> int:
    """How many of the items the short way takes; each of these it takes as SQL does."""
    rows = rows_of(items)
    plan = fitted_by_sql(rows, initial([("pk", "S")], Choice(), 0)).plan
    fitted = fitted_by_sql(rows, plan)
    assert fitted.plan == plan
    expected = by_number(fitted.rows)
    taken = 0
    for row in rows:
        found = decode_few(plan, [row])
        if found is None:
            continue
        taken += 1
        assert row.i not in fitted.poison
        assert found.rows.schema.equals(fitted.rows.schema), (found.rows.schema, fitted.rows.schema)
        assert by_number(found.rows) == {row.i: expected[row.i]}
    return taken


@pytest.mark.parametrize("seed", [1])
def test_what_the_short_way_takes_is_what_sql_says(seed: int) -> None:
    """Equal, column by column; of plain items that is a good part."""
    make = Items(seed, [("pk", "S")])
    items = [make.item() for _ in range(400)]
    plain = [{name: v for name, v in item.items() if name in STEADY} for item in items]
    assert taken_alike(items) > 40
    assert taken_alike([{"pk": {"S": "k"}} | item for item in plain]) > 100


@settings(max_examples=12, deadline=None)
@given(st.lists(ITEMS, min_size=1, max_size=6))
def test_any_items(items: list[dict[str, Any]]) -> None:
    """Whatever the items: declined, or the same."""
    taken_alike([{"pk": {"S": f"k{n}"}} | item for n, item in enumerate(items)])


BASE = {"pk": {"S": "k"}, "n": {"N": "1.50"}, "d": {"M": {"a": {"N": "1"}}}, "z": {"S": "x"}}


@pytest.mark.parametrize(
    "image",
    [
        None,
        "",
        "[]",
        "{}",
        "null",
        '{"pk": {"S":"k"}}',
        '{"pk":{"S":"k"},"pk":{"S":"k"}}',
        '{"pk":{"S":"k"},"new":{"S":"x"}}',
        '{"pk":{"S":"k"},"z":{"S":"a\\\\b"}}',
        '{"pk":{"S":"k"},"z":{"NULL":true}}',
        '{"pk":{"S":"k"},"z":{"N":"1"}}',
        '{"pk":{"S":"k"},"z":{"S":"x","N":"1"}}',
        '{"pk":{"S":"k"},"n":{"N":"1.234"}}',
        '{"pk":{"S":"k"},"n":{"N":"1e3"}}',
        '{"pk":{"S":"k"},"n":{"N":"' + "9" * 38 + '"}}',
        '{"pk":{"S":"k"},"d":{"S":"x"}}',
        '{"pk":{"S":"k"},"d":{"M":{"a":{"N":1}}}}',
    ],
)
def test_whatever_is_no_plain_case_is_declined(image: str | None) -> None:
    """A new attribute, a value that does not fit, a second way to write it: SQL decides."""
    plan = fitted_by_sql(rows_of([BASE]), initial([("pk", "S")], Choice(), 0)).plan
    assert decode_few(plan, [FewRow(0, 0, "k", image)]) is None


@pytest.mark.parametrize(
    "choice",
    [Choice(include=("pk",)), Choice(exclude=("z",)), Choice(unnest_depth=1)],
)
def test_a_choice_of_attributes_is_declined(choice: Choice) -> None:
    """What is left out or unnested is SQL's to say."""
    assert decode_few(initial([("pk", "S")], choice, 0), rows_of([{"pk": {"S": "k"}}])) is None
