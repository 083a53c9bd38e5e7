"""The demo's data: 17,472 real films, as messy as an importer without a schema makes them.

Owns where they come from and how they become items. The facts are Wikidata's (CC0), collected in
the package bokeh-sampledata. Titles that are numbers become numbers, what is unknown becomes NULL,
numbers come whole and with decimals, lists of names as sets or lists, ratings as a map.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from connector.errors import ConfigError

Item = dict[str, Any]
"""Attributes as boto3's low-level client takes them."""

KEY: Final = "id"
_QUERY: Final = """
    SELECT f.ID, f.imdbID, f.Title, f.Year, f.Rating AS Rated, f.Runtime, f.Genre, f.Released,
           f.Director, f.Writer, f."Cast", f.Metacritic, f.Language, f.Country, f.Awards, f.Oscars,
           t.Rating, t.Meter, t.Reviews, t.Fresh, t.Rotten, t.BoxOffice, t.Production
    FROM omdb AS f JOIN tomatoes AS t USING (ID) ORDER BY f.ID
"""
_SETS: Final = ("Genre", "Country", "Language")
_LISTS: Final = ("Cast", "Writer")
_TOMATOES: Final = ("Rating", "Meter", "Reviews", "Fresh", "Rotten")


def films() -> Iterator[Item]:
    """Every film once, keyed by the number `id`.

    Raises ConfigError when the package with the data is not installed.
    """
    package = find_spec("bokeh_sampledata")
    if package is None or package.origin is None:
        raise ConfigError(
            "the demo's data is not installed", hint="Install it: pip install 'dynaduck[emulator]'."
        )
    database = sqlite3.connect(Path(package.origin).parent / "_data" / "movies.db")
    database.row_factory = sqlite3.Row
    try:
        for row in database.execute(_QUERY):
            yield _item(row)
    finally:
        database.close()


def _item(row: sqlite3.Row) -> Item:
    item: Item = {KEY: {"N": str(row["ID"])}}
    for name in row.keys():  # noqa: SIM118 - iterating a sqlite3.Row gives its values
        if name in _TOMATOES or name == "ID":
            continue
        if name in _SETS:
            item |= _set(name, row[name])
        elif name in _LISTS and row[name] is not None:
            item[name] = {"L": [{"S": each} for each in row[name].split(", ") if each]}
        else:
            item[name] = attribute(row[name])
    item["Tomatoes"] = {"M": {name: attribute(row[name]) for name in _TOMATOES}}
    return item


def attribute(value: str | float | None) -> dict[str, Any]:
    """A value as an importer guesses it: text that is a number becomes one."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        return {"S": value}
    number = Decimal(str(value))
    whole = number.to_integral_value()
    return {"N": str(int(whole)) if number == whole else str(number)}


def _set(name: str, names: str | None) -> Item:
    # DynamoDB has no empty set: an unknown genre is an attribute that is absent.
    members = sorted({each for each in (names or "").split(", ") if each})
    return {name: {"SS": members}} if members else {}
