"""The copy as an outsider reads it: SQL in, Arrow out, over HTTP or from the file.

Owns the questions that a comparison asks of the copy, and the two ways to ask them. Must not know
the source, nor how the rows came to be: only the view, `dynaduck.columns` and what they promise.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow as pa

from accelerator.database import Database
from checkpoints.positions import KeyAttribute
from connector.client import ServiceClient
from connector.compare.cells import Attribute, Column, number, of_cell, plain_text
from connector.errors import ServiceError

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
EXTRA_COLUMN: Final = "_extra"
KEYS_PER_ANSWER: Final = 200_000

Row = dict[str, Any]
"""One row of the view: column name to cell, as pyarrow hands it out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave; changes before the AWS time `covered_until_ms` are in it."""

    table: pa.Table
    covered_until_ms: int | None


class Ask(Protocol):
    """One way to put a SELECT to the copy."""

    is_live: bool
    """Whether asking later may give a younger answer."""

    def __call__(self, query: str) -> Answer: ...


class Replica(Protocol):
    """What a comparison needs of the copy."""

    @property
    def is_live(self) -> bool: ...

    def covered_until_ms(self) -> int | None: ...

    def columns(self) -> tuple[Column, ...]: ...

    def rows(
        self, columns: Sequence[Column], keys: Sequence[Mapping[str, Attribute]]
    ) -> Iterator[Row]:
        """All rows under these keys, in no order; there may be others."""

    def keys(self, columns: Sequence[Column]) -> Iterator[Row]:
        """The key columns of every row, at one moment for each part of the key space."""


def key_text(item: Mapping[str, Attribute], key_schema: Sequence[KeyAttribute]) -> str:
    """The one text of an item's key: DynamoDB JSON, key schema order, numbers in their one form."""
    key = {part.name: item[part.name] for part in key_schema}
    for part in key_schema:
        if part.type == "N":
            key[part.name] = {"N": plain_text(number(key[part.name]["N"]))}
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def row_key_text(row: Row, columns: Sequence[Column], key_schema: Sequence[KeyAttribute]) -> str:
    """The key of a row, in the same text."""
    names = {column.attribute: column.name for column in columns}
    return key_text(
        {part.name: of_cell(row[names[part.name]], part.type) for part in key_schema}, key_schema
    )


class SqlReplica:
    """The copy of one dataset behind one way to ask."""

    def __init__(self, dataset: str, key_schema: Sequence[KeyAttribute], ask: Ask) -> None:
        self._dataset = dataset
        self._view = f"main.{quoted(dataset)}"
        self._key_schema = tuple(key_schema)
        self._ask = ask

    @property
    def is_live(self) -> bool:
        return self._ask.is_live

    def covered_until_ms(self) -> int | None:
        return self._ask("SELECT 1 AS one").covered_until_ms

    def columns(self) -> tuple[Column, ...]:
        found = self._ask(
            "SELECT attribute, column_name, type FROM dynaduck.columns"  # noqa: S608 - quoted
            f" WHERE dataset = {literal(self._dataset)}"
        ).table.to_pylist()
        return tuple(Column(row["attribute"], row["column_name"], row["type"]) for row in found)

    def rows(
        self, columns: Sequence[Column], keys: Sequence[Mapping[str, Attribute]]
    ) -> Iterator[Row]:
        if not keys:
            return
        parts = self._key_columns(columns)
        wanted = ", ".join(
            "(" + ", ".join(_key_literal(key[c.attribute], c.type) for c in parts) + ")"
            for key in keys
        )
        names = ", ".join(f"k{index}" for index in range(len(parts)))
        match = " AND ".join(f"r.{quoted(c.name)} = k.k{i}" for i, c in enumerate(parts))
        answer = self._ask(
            f"SELECT r.* FROM {self._view} AS r"  # noqa: S608 - quoted
            f" SEMI JOIN (VALUES {wanted}) AS k({names}) ON {match}"
        )
        yield from answer.table.to_pylist()

    def keys(self, columns: Sequence[Column]) -> Iterator[Row]:
        names = ", ".join(quoted(column.name) for column in self._key_columns(columns))
        counted = self._ask(f"SELECT count(*) AS n FROM {self._view}")  # noqa: S608 - quoted
        count = counted.table.to_pylist()[0]["n"]
        parts = count // KEYS_PER_ANSWER + 1
        for part in range(parts):
            # DuckDB's hash differs between versions, so it cuts the keys but is never compared.
            answer = self._ask(
                f"SELECT {names} FROM {self._view}"  # noqa: S608 - quoted
                f" WHERE hash({names}) % {parts} = {part}"
            )
            yield from answer.table.to_pylist()

    def _key_columns(self, columns: Sequence[Column]) -> list[Column]:
        by_attribute = {column.attribute: column for column in columns}
        missing = [part.name for part in self._key_schema if part.name not in by_attribute]
        if missing:
            raise ServiceError(
                f"Dataset {self._dataset} has no column for its key attribute {missing[0]!r}.",
                hint="Wait until its first snapshot has begun, or check the dataset's name.",
            )
        return [by_attribute[part.name] for part in self._key_schema]


class HttpAsk:
    """Asks the running service's `/v1/sql`."""

    is_live = True

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    def __call__(self, query: str) -> Answer:
        with self._client.sql(query, ARROW_STREAM) as answer:
            body = b"".join(answer.chunks())
            as_of = answer.as_of
        with pa.ipc.open_stream(body) as stream:
            return Answer(stream.read_all(), parse_as_of(as_of))


class FileAsk:
    """Asks the file, while no service holds it. What it covers does not move."""

    is_live = False

    def __init__(self, database: Database, dataset: str) -> None:
        self._cursor = database.cursor()
        ((covered_until_ms,),) = self._cursor.execute(
            "SELECT CASE WHEN bool_or(covered_until IS NULL) THEN NULL"
            " ELSE epoch_ms(min(covered_until)) END"
            " FROM dynaduck.checkpoints WHERE dataset = ? AND state <> 'finished'",
            [dataset],
        ).fetchall()
        self._covered_until_ms = None if covered_until_ms is None else int(covered_until_ms)

    def __call__(self, query: str) -> Answer:
        return Answer(self._cursor.sql(query).to_arrow_table(), self._covered_until_ms)


def parse_as_of(text: str | None) -> int | None:
    """The ms since the epoch of an X-Dynaduck-As-Of header; None where it says nothing."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000) if moment.tzinfo is not None else None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    if "\0" in text:  # a statement ends there for DuckDB 1.5
        return f"decode({_bytes_literal(text.encode())})"
    return "'" + text.replace("'", "''") + "'"


def _bytes_literal(value: bytes) -> str:
    escaped = "".join(f"\\x{byte:02X}" for byte in value)
    return f"'{escaped}'::BLOB"


def _key_literal(attribute: Attribute, column_type: str) -> str:
    """NULL, which matches nothing, where the column cannot hold the key."""
    ((kind, value),) = attribute.items()
    if kind == "B":
        return _bytes_literal(base64.b64decode(value, validate=True))
    text = plain_text(number(value)) if kind == "N" else value
    return f"try_cast({literal(text)} AS {column_type})"
