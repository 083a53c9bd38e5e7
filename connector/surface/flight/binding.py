"""Parameters that come as an Arrow record batch, as the values that DuckDB binds.

Owns their way from the wire: one row, checked before it is read, each value exact or refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from accelerator.query_errors import QueryFailed

MOST_PARAMETERS = 10_000
MOST_BYTES = 2 * 1024 * 1024

Values = list[Any] | dict[str, Any] | None


def bound_bytes(batches: Iterable[pa.RecordBatch]) -> bytes:
    """The only row of what a client binds, as an Arrow stream to keep.

    Raises:
        QueryFailed: it is no row, or several, or larger than parameters may be
    """
    kept: pa.RecordBatch | None = None
    for batch in batches:
        _check_size(batch)
        if batch.num_rows == 0:
            continue
        if kept is not None or batch.num_rows > 1:
            raise QueryFailed(
                "More than one row of parameters is bound.",
                hint="Execute the statement once for each row.",
            )
        kept = batch
    if kept is None:
        return b""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, kept.schema) as writer:
        writer.write_batch(kept)
    return bytes(sink.getvalue().to_pybytes())


def values_of(bound: bytes, names: tuple[str, ...]) -> Values:
    """The values for a statement whose parameters have these names, None for no values.

    Columns bind by their order where the parameters are numbered, else by their names.

    Raises:
        QueryFailed: they are no Arrow data, or of a type that no parameter can have
    """
    if not bound:
        return None
    try:
        batch = next(iter(ipc.open_stream(bound)))
        _check_size(batch)
        values = [_value(column) for column in batch.columns]
    except (pa.ArrowException, StopIteration, ValueError, OSError) as error:
        raise QueryFailed(f"The parameters cannot be read: {error}") from error
    if all(name.isdigit() for name in names):
        return values
    return dict(zip(batch.schema.names, values, strict=True))


def _check_size(batch: pa.RecordBatch) -> None:
    if batch.num_columns > MOST_PARAMETERS:
        raise QueryFailed(f"There are more than {MOST_PARAMETERS} parameters.")
    try:
        # What a client sends may point anywhere: nothing of it is read before this.
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise QueryFailed(f"The parameters are no valid Arrow data: {error}") from error
    if batch.nbytes > MOST_BYTES:
        raise QueryFailed(f"The parameters have more than {MOST_BYTES} bytes.")


def _value(column: pa.Array) -> Any:
    kind = column.type
    if isinstance(column, pa.DictionaryArray):
        return _value(column.dictionary_decode())
    if isinstance(column, pa.UnionArray):
        return _value(column.field(column.type_codes[0].as_py()).slice(_place(column), 1))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Beyond microseconds Python's own type would round; the cast refuses to.
        column = column.cast(pa.timestamp("us", kind.tz))
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"))
    elif not _is_bindable(kind):
        raise QueryFailed(f"A parameter cannot be of the Arrow type {kind}.")
    return column[0].as_py()


def _place(column: pa.UnionArray) -> int:
    """Where the first row's value stands in its member: members of a dense union are packed."""
    is_dense = column.type.mode == "dense"
    return int(column.offsets[0].as_py()) if is_dense else int(column.offset)


def _is_bindable(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_bindable(kind.value_type)
    if types.is_decimal(kind):
        return bool(kind.precision <= 38)
    checks = (
        types.is_null,
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
        types.is_date,
        types.is_time,
        types.is_timestamp,
    )
    return any(check(kind) for check in checks)


# What a driver may bind before the statement's types are known: one of these.
ANY_PARAMETER = pa.dense_union(
    [
        pa.field("string", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("bigint", pa.int64()),
        pa.field("double", pa.float64()),
    ]
)


def parameter_schema(names: tuple[str, ...]) -> pa.Schema:
    """A column for each parameter, of whatever type it will be: DuckDB learns it at binding."""
    return pa.schema([pa.field(name, ANY_PARAMETER) for name in names])
