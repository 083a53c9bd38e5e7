"""The messages of Flight SQL that this server reads and writes.

Owns their wire format: names, field numbers and types, from which the classes are made. A message
travels inside google.protobuf.Any, whose type URL says which one it is. Knows no query.

Source: https://arrow.apache.org/docs/format/FlightSql.html
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

PACKAGE = "arrow.flight.protocol.sql"

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
}
_TABLE = "1 catalog string, 2 db_schema string, 3 table string"
_QUERY = "1 query string, 2 transaction_id bytes"
_HANDLE = "1 prepared_statement_handle bytes"

# `*` marks a field that may come several times.
_MESSAGES = {
    "CommandGetSqlInfo": "1 info *uint32",
    "CommandGetXdbcTypeInfo": "1 data_type int32",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "1 catalog string, 2 db_schema_filter_pattern string",
    "CommandGetTables": (
        "1 catalog string, 2 db_schema_filter_pattern string, 3 table_name_filter_pattern string, "
        "4 table_types *string, 5 include_schema bool"
    ),
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _TABLE,
    "CommandGetExportedKeys": _TABLE,
    "CommandGetImportedKeys": _TABLE,
    "CommandGetCrossReference": (
        "1 pk_catalog string, 2 pk_db_schema string, 3 pk_table string, "
        "4 fk_catalog string, 5 fk_db_schema string, 6 fk_table string"
    ),
    "CommandStatementQuery": _QUERY,
    "CommandStatementUpdate": _QUERY,
    "CommandStatementIngest": "",
    "CommandStatementSubstraitPlan": "",
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandPreparedStatementUpdate": _HANDLE,
    "TicketStatementQuery": "1 statement_handle bytes",
    "ActionCreatePreparedStatementRequest": _QUERY,
    "ActionCreatePreparedStatementResult": (
        f"{_HANDLE}, 2 dataset_schema bytes, 3 parameter_schema bytes"
    ),
    "ActionClosePreparedStatementRequest": _HANDLE,
    "ActionCancelQueryRequest": "1 info bytes",
    "ActionCancelQueryResult": "1 result int32",
    "CancelFlightInfoRequest": "1 info bytes",
    "CancelFlightInfoResult": "1 status int32",
    "DoPutPreparedStatementResult": _HANDLE,
}


class NotAMessage(ValueError):
    """Bytes that are no message of Flight SQL."""


def _classes() -> dict[str, type[Any]]:
    file = descriptor_pb2.FileDescriptorProto(
        name="dynaduck/flight_sql.proto", package=PACKAGE, syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in filter(None, fields.split(", ")):
            number, field_name, kind = field.split()
            message.field.add(
                name=field_name,
                number=int(number),
                type=_TYPES[kind.lstrip("*")],
                label=_Field.LABEL_REPEATED if kind[0] == "*" else _Field.LABEL_OPTIONAL,
            )
    # A pool of its own: another library in the process may know messages by the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()


def message(name: str, **fields: Any) -> Any:
    """A message of that kind."""
    return _CLASSES[name](**fields)


def parse(name: str, data: bytes) -> Any:
    """A message that travels bare, as those of the Flight protocol itself do.

    Raises:
        NotAMessage: the bytes are none
    """
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise NotAMessage(f"These bytes are no {name}.") from error


def pack(name: str, **fields: Any) -> bytes:
    """The message inside an Any."""
    wrapped = any_pb2.Any(
        type_url=f"type.googleapis.com/{PACKAGE}.{name}",
        value=message(name, **fields).SerializeToString(),
    )
    return bytes(wrapped.SerializeToString())


def unpack(data: bytes) -> tuple[str, Any]:
    """Its name, and the message that was inside the Any.

    Raises:
        NotAMessage: the bytes are no Any, or hold a message that is not known here
    """
    try:
        wrapped = any_pb2.Any.FromString(data)
    except DecodeError as error:
        raise NotAMessage("The command is no message of Flight SQL.") from error
    package, _, name = wrapped.type_url.rpartition("/")[2].rpartition(".")
    if package != PACKAGE or name not in _CLASSES:
        raise NotAMessage(f"There is no Flight SQL command {wrapped.type_url[:120]!r}.")
    return name, parse(name, wrapped.value)
