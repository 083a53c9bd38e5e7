"""Tagged DynamoDB JSON to plain JSON, a column at a time.

Owns the unwrapping of `{"M":{"a":{"N":"1"}}}` to `{"a":1}`. The texts come from DuckDB's JSON
writer: compact and valid. Exactness is `items.plain_json`'s.
"""

from __future__ import annotations

import pyarrow as pa

from accelerator import items


def plain_column(tagged: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values without tags, null where the value is null or NULL.

    Raises:
        items.Unreadable: a value is no tagged value.
    """
    chunks = [_slowly(chunk) for chunk in tagged.chunks]
    return pa.chunked_array(chunks, pa.string())


def _slowly(chunk: pa.Array) -> pa.Array:
    return pa.array([None if text is None else plain_text(text) for text in chunk.to_pylist()],
                    pa.string())


def plain_text(text: str) -> str | None:
    value = items.read_value(text)
    return None if "NULL" in value else items.plain_json(value)
