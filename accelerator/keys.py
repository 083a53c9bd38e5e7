"""The canonical text of an item's key, and its hash.

Owns the one form in which keys are compared: strings as they are, numbers in normal form, binaries
as hex; a sort key follows behind the length of the partition key, so that no two pairs meet. The
hash is the lower half of the text's MD5, equal in SQL and here. Knows no columns.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from accelerator import items
from accelerator.numerals import NORMAL_SQL
from accelerator.sql import identifier, json_text, literal
from checkpoints.positions import KeyAttribute

# A fixed text and its hash by this build of DuckDB, stored in the file: they prove that stored
# hashes still mean the same.
PROBE = "dynaduck é"


def hash_of(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[8:], "little")


def hash_sql(expression: str) -> str:
    return f"md5_number_lower({expression})"


def key_of(item: dict[str, items.Attribute], schema: Sequence[KeyAttribute]) -> str:
    """Raises `items.Unreadable` when a key attribute is absent or of another type."""
    parts = [_part(item, attribute) for attribute in schema]
    if len(parts) == 1:
        return parts[0]
    return f"{len(parts[0])}:{parts[0]}{parts[1]}"


def _part(item: dict[str, items.Attribute], attribute: KeyAttribute) -> str:
    value = item.get(attribute.name, {})
    content = value.get(attribute.type)
    if not isinstance(content, str):
        raise items.Unreadable(f"key attribute {attribute.name!r} is not of type {attribute.type}")
    if attribute.type == "B":
        return base64.b64decode(content).hex().upper()
    return content


def key_sql(document: str, schema: Sequence[KeyAttribute]) -> str:
    """A SQL expression for the key of `document`, NULL where Python has to look at it."""
    structure = json_text({attribute.name: {attribute.type: "VARCHAR"} for attribute in schema})
    if len({attribute.name.lower() for attribute in schema}) < len(schema):
        sources = [
            f"from_json({document}, {literal(json_text({a.name: {a.type: 'VARCHAR'}}))})"
            for a in schema
        ]
    else:
        sources = [f"from_json({document}, {literal(structure)})"] * len(schema)
    parts = [
        _part_sql(f"{source}.{identifier(a.name)}.{identifier(a.type)}", a.type)
        for source, a in zip(sources, schema, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return f"length({parts[0]}) || ':' || {parts[0]} || {parts[1]}"


def _part_sql(value: str, tag: str) -> str:
    match tag:
        case "N":
            return f"CASE WHEN regexp_full_match({value}, {literal(NORMAL_SQL)}) THEN {value} END"
        case "B":
            return f"hex(TRY(from_base64({value})))"
        case _:
            return value
