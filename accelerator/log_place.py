"""Which segment of the log the rows of a data file stand at: one row, in the data's transaction.

Owns the table `dynaduck.log_position`, which a file has only where its rows come through a log.
It is no position in a stream: those follow from the segments. Begins and ends no transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from accelerator.statements import count, first_row
from checkpoints.segment_log import GENESIS, Tip

_TABLE = """
CREATE TABLE IF NOT EXISTS dynaduck.log_position (
    pipeline VARCHAR NOT NULL, segment BIGINT NOT NULL, epoch BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL, newest_created TIMESTAMP)
"""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """`newest_created_ms` is the AWS time of the youngest change in the rows, None before one."""

    pipeline: str
    tip: Tip = GENESIS
    newest_created_ms: int | None = None


def read_place(cursor: duckdb.DuckDBPyConnection) -> LogPlace | None:
    """None in a file whose rows are no log's."""
    if not _has_table(cursor):
        return None
    row = first_row(
        cursor,
        "SELECT pipeline, segment, epoch, sha256, epoch_ms(newest_created) "
        "FROM dynaduck.log_position",
    )
    return None if row is None else LogPlace(row[0], Tip(row[1], row[2], row[3]), row[4])


def write_place(cursor: duckdb.DuckDBPyConnection, place: LogPlace) -> None:
    """Needs the table: see `make_table`."""
    tip = place.tip
    values = [place.pipeline, tip.index, tip.epoch, tip.sha256, place.newest_created_ms]
    updated = cursor.execute(
        "UPDATE dynaduck.log_position SET pipeline = ?, segment = ?, epoch = ?, sha256 = ?, "
        "newest_created = epoch_ms(CAST(? AS BIGINT))",
        values,
    ).fetchall()
    if not updated[0][0]:
        cursor.execute(
            "INSERT INTO dynaduck.log_position VALUES (?, ?, ?, ?, epoch_ms(CAST(? AS BIGINT)))",
            values,
        )


def make_table(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.execute(_TABLE)


def leave_log(cursor: duckdb.DuckDBPyConnection) -> None:
    """From here on the rows are no log's: what is applied next is in no segment."""
    if _has_table(cursor):
        cursor.execute("DELETE FROM dynaduck.log_position")


def has_rows(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Whether the file holds any dataset."""
    return count(cursor, "SELECT count(*) FROM dynaduck.generations") > 0


def _has_table(cursor: duckdb.DuckDBPyConnection) -> bool:
    return bool(
        count(
            cursor,
            "SELECT count(*) FROM duckdb_tables() "
            "WHERE schema_name = 'dynaduck' AND table_name = 'log_position'",
        )
    )
