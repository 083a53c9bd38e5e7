"""What a client may list: catalogs, schemas, tables with their columns, keys, types.

Owns the tables that Flight SQL's metadata commands answer with, their columns and nullability. Asks
for names and columns as any query does, so nothing is listed that a query could not read.

Source: https://arrow.apache.org/docs/format/FlightSql.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from accelerator.gate_rules import SYSTEM_RELATIONS
from accelerator.sql import identifier
from connector.surface.flight.sql_info import sql_info_table

DATASET_TYPE = "TABLE"
SYSTEM_TYPE = "SYSTEM TABLE"
_SYSTEM_SCHEMAS = ("dynaduck", "runtime")

_NAMES = (
    "SELECT table_catalog, table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema IN ('main', 'dynaduck', 'runtime') ORDER BY ALL"
)


def _schema(*fields: str) -> pa.Schema:
    """Of `name type` each; a name that ends in `!` is never null."""
    types = {
        "text": pa.string(),
        "int": pa.int32(),
        "byte": pa.uint8(),
        "bool": pa.bool_(),
        "bytes": pa.binary(),
        "texts": pa.list_(pa.field("item", pa.string(), nullable=False)),
    }
    return pa.schema(
        pa.field(name.rstrip("!"), types[kind], nullable=not name.endswith("!"))
        for name, kind in (field.split() for field in fields)
    )


_TABLES = ("catalog_name text", "db_schema_name text", "table_name! text", "table_type! text")
_FOREIGN_KEYS = _schema(
    "pk_catalog_name text",
    "pk_db_schema_name text",
    "pk_table_name! text",
    "pk_column_name! text",
    "fk_catalog_name text",
    "fk_db_schema_name text",
    "fk_table_name! text",
    "fk_column_name! text",
    "key_sequence! int",
    "fk_key_name text",
    "pk_key_name text",
    "update_rule! byte",
    "delete_rule! byte",
)
_SCHEMAS: Mapping[str, pa.Schema] = {
    "CommandGetCatalogs": _schema("catalog_name! text"),
    "CommandGetDbSchemas": _schema("catalog_name text", "db_schema_name! text"),
    "CommandGetTableTypes": _schema("table_type! text"),
    "CommandGetPrimaryKeys": _schema(
        "catalog_name text",
        "db_schema_name text",
        "table_name! text",
        "column_name! text",
        "key_name text",
        "key_sequence! int",
    ),
    "CommandGetExportedKeys": _FOREIGN_KEYS,
    "CommandGetImportedKeys": _FOREIGN_KEYS,
    "CommandGetCrossReference": _FOREIGN_KEYS,
    "CommandGetXdbcTypeInfo": _schema(
        "type_name! text",
        "data_type! int",
        "column_size int",
        "literal_prefix text",
        "literal_suffix text",
        "create_params texts",
        "nullable! int",
        "case_sensitive! bool",
        "searchable! int",
        "unsigned_attribute bool",
        "fixed_prec_scale! bool",
        "auto_increment bool",
        "local_type_name text",
        "minimum_scale int",
        "maximum_scale int",
        "sql_data_type! int",
        "datetime_subcode int",
        "num_prec_radix int",
        "interval_precision int",
    ),
}
COMMANDS = frozenset(_SCHEMAS) | {"CommandGetTables", "CommandGetSqlInfo"}

# type: its number in JDBC, its size, the radix of a number
_TYPES = {
    "BLOB": (-3, None, None),
    "BIGINT": (-5, 19, 10),
    "DECIMAL": (3, 38, 10),
    "DOUBLE": (8, 53, 2),
    "VARCHAR": (12, None, None),
    "JSON": (12, None, None),
    "BOOLEAN": (-7, 1, None),
    "DATE": (91, 10, None),
    "TIMESTAMP": (93, 26, None),
}


class Answer(Protocol):
    """Rows of a query, and what DuckDB calls the types of their columns."""

    @property
    def table(self) -> pa.Table: ...

    @property
    def type_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class _Relation:
    catalog: str
    schema: str
    name: str

    @property
    def kind(self) -> str:
        return DATASET_TYPE if self.schema == "main" else SYSTEM_TYPE


class Listing:
    """Answers metadata commands. Thread-safe; keeps nothing between them.

    ask    runs a query as a client's and gives all its rows
    keys   the key columns of each dataset
    """

    def __init__(
        self,
        ask: Callable[[str], Answer],
        keys: Callable[[], Mapping[str, tuple[str, ...]]],
        facts: Mapping[int, Any],
    ) -> None:
        self._ask = ask
        self._keys = keys
        self._facts = facts

    def schema(self, command: str, asked: Any) -> pa.Schema:
        """The columns that the command's answer has."""
        if command == "CommandGetTables":
            return _schema(*_TABLES, *(["table_schema! bytes"] if asked.include_schema else []))
        if command == "CommandGetSqlInfo":
            return sql_info_table({}, ()).schema
        return _SCHEMAS[command]

    def answer(self, command: str, asked: Any) -> pa.Table:
        """The rows of the command's answer, in the order that Flight SQL asks for.

        Raises:
            QueryError: the names could not be read
        """
        if command == "CommandGetSqlInfo":
            return sql_info_table(self._facts, asked.info)
        return pa.Table.from_pylist(
            list(self._rows(command, asked)), schema=self.schema(command, asked)
        )

    def _rows(self, command: str, asked: Any) -> Iterable[dict[str, Any]]:
        match command:
            case "CommandGetCatalogs":
                return [{"catalog_name": name} for name in sorted({r.catalog for r in self._all()})]
            case "CommandGetDbSchemas":
                return self._schemas(asked)
            case "CommandGetTables":
                return self._tables(asked)
            case "CommandGetTableTypes":
                return [{"table_type": SYSTEM_TYPE}, {"table_type": DATASET_TYPE}]
            case "CommandGetPrimaryKeys":
                return self._primary_keys(asked)
            case "CommandGetXdbcTypeInfo":
                return _types(asked)
            case _:
                return []  # keys of one dataset that refer to another: there are none

    def _all(self) -> list[_Relation]:
        rows = self._ask(_NAMES).table.to_pylist()
        found = [
            _Relation(row["table_catalog"], row["table_schema"], row["table_name"]) for row in rows
        ]
        return [r for r in found if r.schema == "main" or (r.schema, r.name) in SYSTEM_RELATIONS]

    def _schemas(self, asked: Any) -> list[dict[str, Any]]:
        fits = _pattern(asked, "db_schema_filter_pattern")
        known = {(r.catalog, r.schema) for r in self._all() if _is_in_catalog(r, asked)}
        return [
            {"catalog_name": catalog, "db_schema_name": schema}
            for catalog, schema in sorted(known)
            if fits(schema)
        ]

    def _tables(self, asked: Any) -> Iterable[dict[str, Any]]:
        schema_fits = _pattern(asked, "db_schema_filter_pattern")
        name_fits = _pattern(asked, "table_name_filter_pattern")
        kinds = set(asked.table_types)
        keys = self._keys() if asked.include_schema else {}
        for relation in self._all():
            if not (schema_fits(relation.schema) and name_fits(relation.name)):
                continue
            if not _is_in_catalog(relation, asked) or (kinds and relation.kind not in kinds):
                continue
            row = {
                "catalog_name": relation.catalog,
                "db_schema_name": relation.schema,
                "table_name": relation.name,
                "table_type": relation.kind,
            }
            if asked.include_schema:
                key = keys.get(relation.name, ()) if relation.schema == "main" else ()
                row["table_schema"] = self._columns(relation, key).serialize().to_pybytes()
            yield row

    def _columns(self, relation: _Relation, key: tuple[str, ...]) -> pa.Schema:
        """A dataset's key is never null, every other attribute may be absent."""
        name = f"{identifier(relation.schema)}.{identifier(relation.name)}"
        answer = self._ask(f"FROM {name} LIMIT 0")
        fields = zip(answer.table.schema, answer.type_names, strict=True)
        return pa.schema(
            field.with_nullable(field.name not in key).with_metadata(
                {"ARROW:FLIGHT:SQL:TYPE_NAME": type_name, "ARROW:FLIGHT:SQL:IS_READ_ONLY": "1"}
            )
            for field, type_name in fields
        )

    def _primary_keys(self, asked: Any) -> Iterable[dict[str, Any]]:
        keys = self._keys().get(asked.table, ())
        if asked.HasField("db_schema") and asked.db_schema != "main":
            return
        for relation in self._all():
            if relation.schema != "main" or relation.name != asked.table:
                continue
            if not _is_in_catalog(relation, asked):
                continue
            for number, column in enumerate(keys, 1):
                yield {
                    "catalog_name": relation.catalog,
                    "db_schema_name": relation.schema,
                    "table_name": relation.name,
                    "column_name": column,
                    "key_name": None,
                    "key_sequence": number,
                }


def _is_in_catalog(relation: _Relation, asked: Any) -> bool:
    return not asked.HasField("catalog") or asked.catalog == relation.catalog


def _pattern(asked: Any, field: str) -> Callable[[str], bool]:
    """Whether a name fits the LIKE pattern that was given, if one was."""
    if not asked.HasField(field):
        return lambda _name: True
    signs = {"%": ".*", "_": "."}
    pieces = re.findall(r"\\.|.", getattr(asked, field)[:1000], re.DOTALL)
    # Runs of % would make the expression backtrack for ever.
    text = re.sub(r"(\.\*)+", ".*", "".join(signs.get(p, re.escape(p[-1])) for p in pieces))
    if text.count(".*") > _MOST_WILDCARDS:
        return lambda _name: False
    expression = re.compile(text, re.DOTALL)
    return lambda name: expression.fullmatch(name) is not None


_MOST_WILDCARDS = 8


def _types(asked: Any) -> list[dict[str, Any]]:
    wanted = asked.data_type if asked.HasField("data_type") else None
    rows = [
        {
            "type_name": name,
            "data_type": number,
            "column_size": size,
            "literal_prefix": None if radix or number == -7 else "'",
            "literal_suffix": None if radix or number == -7 else "'",
            "create_params": ["precision", "scale"] if name == "DECIMAL" else None,
            "nullable": 1,
            "case_sensitive": number == 12,
            "searchable": 3,
            "unsigned_attribute": False if radix else None,
            "fixed_prec_scale": False,
            "auto_increment": False if radix else None,
            "local_type_name": name,
            "minimum_scale": 0 if name == "DECIMAL" else None,
            "maximum_scale": 38 if name == "DECIMAL" else None,
            "sql_data_type": 9 if number in (91, 93) else number,
            "datetime_subcode": {91: 1, 93: 3}.get(number),
            "num_prec_radix": radix,
            "interval_precision": None,
        }
        for name, (number, size, radix) in _TYPES.items()
        if wanted in (None, number)
    ]
    return sorted(rows, key=lambda row: (row["data_type"], row["type_name"]))
