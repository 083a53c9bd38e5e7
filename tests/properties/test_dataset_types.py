"""Random items through `apply`, compared value by value with the reference decoder."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.dataset_builder import (
    begun,
    changes,
    item,
    open_database,
    page,
    put,
    query,
    read_items,
)

UNICODE = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(UNICODE, max_size=12)
NAMES = st.one_of(
    st.sampled_from(
        ["a", "A", "b", "Pk", "_raw", "_h", "_EXTRA", "rowid", "$x", "/y", "a.b", "é", 'q"q']
    ),
    st.text(UNICODE, min_size=1, max_size=6),
).filter(lambda name: name != "pk")


@st.composite
def numbers(draw: st.DrawFn) -> str:
    digits = draw(st.integers(0, 10 ** draw(st.sampled_from([1, 3, 9, 18, 19, 38])) - 1))
    exponent = draw(st.sampled_from([0, 0, 0, -1, -2, -5, -38, -130, 3, 87]))
    text = f"{'-' if draw(st.booleans()) else ''}{digits}"
    if exponent == 0:
        return text
    return draw(
        st.sampled_from(
            [f"{text}e{exponent}", f"{text}E{exponent}", oracle.number_text(f"{text}e{exponent}")]
        )
    )


BINARIES = st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode())


def sets(elements: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(elements, min_size=1, max_size=3, unique=True)


SCALARS = st.one_of(
    TEXTS.map(lambda v: {"S": v}),
    numbers().map(lambda v: {"N": v}),
    BINARIES.map(lambda v: {"B": v}),
    st.booleans().map(lambda v: {"BOOL": v}),
    st.just({"NULL": True}),
    sets(TEXTS).map(lambda v: {"SS": v}),
    sets(numbers()).map(lambda v: {"NS": v}),
    sets(BINARIES).map(lambda v: {"BS": v}),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: {"L": v}),
        st.dictionaries(
            st.one_of(TEXTS, st.sampled_from(["M", "S", "NULL", "N"])), inner, max_size=3
        ).map(lambda v: {"M": v}),
    ),
    max_leaves=6,
)
ITEMS = st.dictionaries(NAMES, VALUES, max_size=5)


def assert_columns_exact(database: Any, items: dict[str, dict[str, Any]]) -> None:
    columns = query(database, "SELECT attribute, column_name, type FROM dynaduck.columns")
    types = {attribute: (name, sql_type) for attribute, name, sql_type in columns}
    assert set(types) >= {name for it in items.values() for name in it}
    for attribute, (name, sql_type) in types.items():
        quoted = '"' + name.replace('"', '""') + '"'
        cast = f"CAST({quoted} AS VARCHAR)" if sql_type == "JSON" else quoted
        for pk, shown in query(database, f"SELECT pk, {cast} FROM main.orders"):
            is_json = sql_type == "JSON" and shown is not None
            value = oracle.parse_json(shown) if is_json else shown
            assert value == oracle.expected(items[pk].get(attribute), sql_type), (attribute, pk)


@pytest.mark.slow(10)
@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.lists(ITEMS, max_size=4), min_size=1, max_size=4), by_scan=st.booleans())
def test_every_value_reads_back_equal(groups: list[list[dict[str, Any]]], by_scan: bool) -> None:
    """Whatever the items and the order in which they come, each value reads back equal, by SQL
    through its column and as the item as a whole."""
    with tempfile.TemporaryDirectory() as directory:
        database = open_database(Path(directory))
        dataset = begun(database)
        items: dict[str, dict[str, Any]] = {}
        number = 0
        for group in groups:
            rows, images = [], []
            for attributes in group:
                number += 1
                rows.append(put(number, f"k{number}", **attributes))
                images.append(item(f"k{number}", **attributes))
                items[f"k{number}"] = images[-1]
            if by_scan:
                ticket = dataset.open_scan_ticket()
                applied = dataset.apply([page(images, ticket=ticket)])
                dataset.close_scan_ticket(ticket)
            else:
                applied = dataset.apply([changes(rows)])
            assert applied.dead_letters == 0
        found = {k: oracle.canonical_item(v) for k, v in read_items(database).items()}
        assert found == {k: oracle.canonical_item(v) for k, v in items.items()}
        assert_columns_exact(database, items)
        database.close()
