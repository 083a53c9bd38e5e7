"""A result as bytes on a wire: JSON, NDJSON, CSV or an Arrow IPC stream, batch by batch.

Owns the framing; `cells` owns the values. An encoder holds one batch at a time, so the memory a
result takes does not depend on its length.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyarrow import ipc

from accelerator.cells import Shape, encode_json, json_cells, shape_of, text_cells


class Encoder(Protocol):
    """`begin`, any number of `rows`, `end`; each gives the bytes to send, perhaps none."""

    content_type: ClassVar[str]

    def begin(self) -> bytes: ...

    def rows(self, batch: pa.RecordBatch) -> bytes: ...

    def end(self) -> bytes: ...


class _Rows:
    """Column names made unique, and their shapes."""

    def __init__(self, schema: pa.Schema, types: Sequence[Any]) -> None:
        self.names = unique_names(schema.names)
        self.shapes: list[Shape] = [
            shape_of(name, kind) for name, kind in zip(self.names, types, strict=True)
        ]

    def objects(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = [
            json_cells(column, shape)
            for column, shape in zip(batch.columns, self.shapes, strict=True)
        ]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]


class JsonEncoder:
    """An array of objects, one per row."""

    content_type = "application/json"

    def __init__(self, schema: pa.Schema, types: Sequence[Any]) -> None:
        self._rows = _Rows(schema, types)
        self._is_first = True

    def begin(self) -> bytes:
        return b"["

    def rows(self, batch: pa.RecordBatch) -> bytes:
        body = encode_json(self._rows.objects(batch))[1:-1]
        lead = b"" if self._is_first else b","
        self._is_first = False
        return lead + body

    def end(self) -> bytes:
        return b"]\n"


class NdjsonEncoder:
    """One object per line."""

    content_type = "application/x-ndjson"

    def __init__(self, schema: pa.Schema, types: Sequence[Any]) -> None:
        self._rows = _Rows(schema, types)

    def begin(self) -> bytes:
        return b""

    def rows(self, batch: pa.RecordBatch) -> bytes:
        return b"".join(encode_json(row) + b"\n" for row in self._rows.objects(batch))

    def end(self) -> bytes:
        return b""


class CsvEncoder:
    """A header line, then one line per row. NULL is nothing, the empty string is `""`."""

    content_type = "text/csv; charset=utf-8"

    def __init__(self, schema: pa.Schema, types: Sequence[Any]) -> None:
        self._rows = _Rows(schema, types)

    def begin(self) -> bytes:
        return self._lines([self._rows.names])

    def rows(self, batch: pa.RecordBatch) -> bytes:
        columns = [
            text_cells(column, shape)
            for column, shape in zip(batch.columns, self._rows.shapes, strict=True)
        ]
        return self._lines(zip(*columns, strict=True))

    def end(self) -> bytes:
        return b""

    @staticmethod
    def _lines(rows: Any) -> bytes:
        text = io.StringIO()
        # QUOTE_STRINGS would do, but it comes with Python 3.12 only.
        for row in rows:
            text.write(",".join(map(_csv_field, row)) + "\r\n")
        return text.getvalue().encode()


def _csv_field(value: str | None) -> str:
    if value is None:
        return ""
    if value == "" or any(sign in value for sign in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


class ArrowEncoder:
    """An Arrow IPC stream of the batches as DuckDB made them."""

    content_type = "application/vnd.apache.arrow.stream"

    def __init__(self, schema: pa.Schema, types: Sequence[Any]) -> None:
        _Rows(schema, types)
        self._sink = io.BytesIO()
        self._writer = ipc.new_stream(self._sink, schema)

    def begin(self) -> bytes:
        return self._taken()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


def unique_names(names: Sequence[str]) -> list[str]:
    """Names as they are, a repeated one with `_1`, `_2`…: a JSON object holds each only once."""
    taken: set[str] = set()
    unique = []
    for name in names:
        candidate, n = name, 0
        while candidate in taken:
            n += 1
            candidate = f"{name}_{n}"
        taken.add(candidate)
        unique.append(candidate)
    return unique


_ENCODERS: tuple[type[Any], ...] = (JsonEncoder, NdjsonEncoder, ArrowEncoder, CsvEncoder)
MEDIA_TYPES: dict[str, type[Any]] = {
    encoder.content_type.partition(";")[0]: encoder for encoder in _ENCODERS
}


def encoder_for(accept: str) -> type[Any] | None:
    """The encoder that an Accept header prefers; JSON for `*/*`, None where none fits."""
    wanted = []
    for order, part in enumerate(accept.split(",")):
        media, *options = (piece.strip().lower() for piece in part.split(";"))
        quality = next((o[2:] for o in options if o.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        if media and weight > 0:
            wanted.append((-weight, order, media))
    if not wanted:
        return JsonEncoder
    for _, _, media in sorted(wanted):
        if media in MEDIA_TYPES:
            return MEDIA_TYPES[media]
        if media in ("*/*", "application/*"):
            return JsonEncoder
        if media == "text/*":
            return CsvEncoder
    return None
