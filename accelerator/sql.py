"""Text of SQL: quoting and small builders. Knows no table and no type of ours."""

from __future__ import annotations

import json


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    if "\0" not in quoted:
        return quoted
    # DuckDB 1.5 ends a statement's text at NUL.
    return "(" + quoted.replace("\0", "' || chr(0) || '") + ")"


def json_text(value: object) -> str:
    """Compact JSON as DuckDB writes it: no spaces, no escapes of what UTF-8 can hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_pointer(name: str) -> str:
    """The path of a top-level member: unlike `$.name` it takes every name, case-sensitively."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
