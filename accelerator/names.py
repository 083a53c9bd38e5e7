"""Attribute names as column names.

Owns the rule: a column is called like its attribute, case and all, unless that name is taken (SQL
compares names without case), empty, over-long, holds a character that an identifier cannot, or is
one of ours. Then unusable characters become `_` and a suffix is added that depends on the
attribute's name alone, so that it is the same after every reload. Knows no types.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

# Names with a meaning of their own in the row tables, the view or DuckDB.
RESERVED = frozenset({"_h", "_k", "_raw", "_extra", "rowid"})
MAX_LENGTH = 255


def column_name(attribute: str, taken: Container[str]) -> str:
    """`taken` holds the case-folded names in use."""
    cleaned = "".join("_" if _unusable(character) else character for character in attribute)
    cleaned = cleaned[:MAX_LENGTH]
    if cleaned == attribute and cleaned and is_free(cleaned, taken):
        return cleaned
    digest = hashlib.sha256(attribute.encode("utf-8", "surrogatepass")).hexdigest()
    stem = cleaned[: MAX_LENGTH - 20] or "attribute"
    for length in (6, 12, 18):
        name = f"{stem}_{digest[:length]}"
        if is_free(name, taken):
            return name
    raise ValueError(f"no free column name for attribute {attribute[:60]!r}")


def is_free(name: str, taken: Container[str]) -> bool:
    folded = fold(name)
    return folded not in RESERVED and folded not in taken


def fold(name: str) -> str:
    """The form under which DuckDB holds two names equal: it lower-cases ASCII letters only."""
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in name)


def _unusable(character: str) -> bool:
    # NUL ends a C string somewhere; lone surrogates have no UTF-8.
    return character == "\0" or "\ud800" <= character <= "\udfff"
