"""Pinned types: what the configuration says a column is, and how a value gets there exactly.

Owns the grammar of a pin's type and the SQL that takes it out of tagged JSON, where numbers are
texts: nothing passes through a double unless the pin says DOUBLE. Knows no columns or tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from accelerator.sql import identifier

_SCALAR = re.compile(
    r"(VARCHAR|TEXT|STRING|BIGINT|INTEGER|INT|SMALLINT|TINYINT|HUGEINT|UBIGINT|UINTEGER|DOUBLE|"
    r"FLOAT|REAL|BOOLEAN|BOOL|BLOB|BYTEA|TIMESTAMPTZ|TIMESTAMP_MS|TIMESTAMP_S|TIMESTAMP|DATE|TIME|"
    r"UUID|DECIMAL\s*\(\s*\d+\s*,\s*\d+\s*\)|NUMERIC\s*\(\s*\d+\s*,\s*\d+\s*\))",
    re.IGNORECASE,
)
_FIELD = re.compile(r'\s*(?:"((?:[^"]|"")+)"|(\w+))\s+')
_INTEGERS = frozenset(
    {"BIGINT", "INTEGER", "INT", "SMALLINT", "TINYINT", "HUGEINT", "UBIGINT", "UINTEGER"}
)
_FLOATS = frozenset({"DOUBLE", "FLOAT", "REAL"})
_TIMES = frozenset({"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "DATE"})
_TEXTS = frozenset({"VARCHAR", "TEXT", "STRING"})
# Epoch seconds reach this in the year 5138; epoch milliseconds passed it in 1973.
_FIRST_MILLISECONDS = 100_000_000_000


class BadPin(ValueError):
    """The text is no type that a column can be pinned to."""


@dataclass(frozen=True, slots=True)
class PinnedType:
    """A scalar (`name`), a list (`element`) or a struct (`fields`)."""

    name: str = ""
    element: PinnedType | None = None
    fields: tuple[tuple[str, PinnedType], ...] = ()

    @property
    def sql_type(self) -> str:
        if self.element is not None:
            return f"{self.element.sql_type}[]"
        if self.fields:
            inner = ", ".join(f"{identifier(n)} {t.sql_type}" for n, t in self.fields)
            return f"STRUCT({inner})"
        return self.name

    def structure(self) -> object:
        """What from_json has to look for in the tagged value."""
        if self.element is not None:
            found: dict[str, object] = {"L": [self.element.structure()]}
            scalar = self.element.name
            if scalar in _TEXTS or scalar in _TIMES or scalar == "UUID":
                found["SS"] = ["VARCHAR"]
            elif scalar in _INTEGERS or scalar in _FLOATS or scalar.startswith("DECIMAL"):
                found["NS"] = ["VARCHAR"]
            elif scalar == "BLOB":
                found["BS"] = ["VARCHAR"]
            return found | {"NULL": "BOOLEAN"}
        if self.fields:
            return {"M": {n: t.structure() for n, t in self.fields}, "NULL": "BOOLEAN"}
        tags = {"S": "VARCHAR", "N": "VARCHAR", "BOOL": "BOOLEAN", "B": "VARCHAR"}
        return tags | {"NULL": "BOOLEAN"}

    def value_sql(self, document: str) -> str:
        """The value, from the result of from_json by `structure`; NULL where it does not fit."""
        if self.element is not None:
            parts = [f"list_transform({document}.L, lambda x: {self.element.value_sql('x')})"]
            parts += [
                f"list_transform({document}.{tag}, lambda x: {self.element.text_sql('x', tag[0])})"
                for tag in ("SS", "NS", "BS")
                if tag in _keys(self.structure())
            ]
            return f"coalesce({', '.join(parts)})"
        if self.fields:
            inner = ", ".join(
                f"{identifier(n)} := {t.value_sql(f'{document}.M.{identifier(n)}')}"
                for n, t in self.fields
            )
            return f"CASE WHEN {document}.M IS NOT NULL THEN struct_pack({inner}) END"
        if self.name == "BOOLEAN":
            return f"{document}.BOOL"
        choices = [self.text_sql(f"{document}.{tag}", tag) for tag in self._tags()]
        return f"coalesce({', '.join(choices)})"

    def fits_sql(self, document: str) -> str:
        """TRUE when the whole value went in; parts that are absent or NULL do."""
        empty = f'({document} IS NULL OR coalesce({document}."NULL", FALSE))'
        if self.element is not None:
            inner = self.element.fits_sql("x")
            deep = f"coalesce(list_bool_and(list_transform({document}.L, lambda x: {inner})), TRUE)"
            flat = [f"{document}.L IS NOT NULL"]
            for tag in ("SS", "NS", "BS"):
                if tag in _keys(self.structure()):
                    test = f"{self.element.text_sql('x', tag[0])} IS NOT NULL"
                    flat.append(
                        f"coalesce(list_bool_and(list_transform({document}.{tag}, "
                        f"lambda x: {test})), FALSE)"
                    )
            return f"({empty} OR (({' OR '.join(flat)}) AND {deep}))"
        if self.fields:
            inner = " AND ".join(
                t.fits_sql(f"{document}.M.{identifier(n)}") for n, t in self.fields
            )
            return f"({empty} OR ({document}.M IS NOT NULL AND {inner}))"
        return f"({empty} OR {self.value_sql(document)} IS NOT NULL)"

    def _tags(self) -> tuple[str, ...]:
        if self.name in _TIMES or self.name in _TEXTS:
            return ("S", "N")
        if self.name in ("UUID", "TIME"):
            return ("S",)
        return ("B",) if self.name == "BLOB" else ("N",)

    def text_sql(self, text: str, tag: str) -> str:
        """The scalar from the text under a tag; NULL where it would lose something."""
        cast = f"TRY_CAST({text} AS {self.name})"
        if tag == "B":
            return f"TRY(from_base64({text}))"
        if self.name in _TIMES and tag == "N":
            number = f"TRY_CAST({text} AS BIGINT)"
            in_ms = (
                f"CASE WHEN abs({number}) >= {_FIRST_MILLISECONDS} THEN {number} "
                f"ELSE {number} * 1000 END"
            )
            # A date's epoch number must be a midnight, a time's a whole number.
            exact = f"{number} = TRY_CAST({text} AS DECIMAL(38,10))"
            if self.name == "DATE":
                exact += f" AND ({in_ms}) % 86400000 = 0"
            return f"CASE WHEN {exact} THEN CAST(epoch_ms({in_ms}) AS {self.name}) END"
        if self.name in _INTEGERS:
            return f"CASE WHEN CAST({cast} AS VARCHAR) = {text} THEN {cast} END"
        if self.name.startswith("DECIMAL"):
            # DECIMAL(p, p) is written without its leading zero.
            back = f"regexp_replace(CAST({cast} AS VARCHAR), '^(-?)\\.', '\\10.')"
            back = (
                f"CASE WHEN {back} LIKE '%.%' THEN rtrim(rtrim({back}, '0'), '.') ELSE {back} END"
            )
            return f"CASE WHEN {back} = {text} THEN {cast} END"
        return text if self.name in _TEXTS else cast


def _keys(structure: object) -> list[str]:
    return list(structure) if isinstance(structure, dict) else []


def parse(text: str) -> PinnedType:
    """Raises BadPin, which says what is wrong with the type's text."""
    parsed, rest = _parse(text.strip())
    if rest.strip():
        raise BadPin(f"{text!r} is not a type: {rest.strip()[:40]!r} is left over")
    return parsed


def _parse(text: str) -> tuple[PinnedType, str]:
    if re.match(r"STRUCT\s*\(", text, re.IGNORECASE):
        parsed, rest = _parse_struct(text[text.index("(") + 1 :])
    else:
        found = _SCALAR.match(text)
        if found is None:
            raise BadPin(f"{text[:60]!r} is not a type that a column can be pinned to")
        name = re.sub(r"\s+", "", found.group(1).upper())
        name = {"INT": "INTEGER", "BOOL": "BOOLEAN", "BYTEA": "BLOB"}.get(name, name)
        name = "VARCHAR" if name in _TEXTS else name.replace("NUMERIC", "DECIMAL")
        parsed, rest = PinnedType(name), text[found.end() :]
    while rest.lstrip().startswith("[]"):
        parsed, rest = PinnedType(element=parsed), rest.lstrip()[2:]
    return parsed, rest


def _parse_struct(text: str) -> tuple[PinnedType, str]:
    fields: list[tuple[str, PinnedType]] = []
    while True:
        found = _FIELD.match(text)
        if found is None:
            raise BadPin(f"a STRUCT field is a name and a type, not {text[:40]!r}")
        name = (found.group(1) or found.group(2)).replace('""', '"')
        inner, text = _parse(text[found.end() :].lstrip())
        fields.append((name, inner))
        text = text.lstrip()
        if text.startswith(","):
            text = text[1:]
        elif text.startswith(")"):
            return PinnedType(fields=tuple(fields)), text[1:]
        else:
            raise BadPin(f"a STRUCT ends with a parenthesis, not {text[:40]!r}")
