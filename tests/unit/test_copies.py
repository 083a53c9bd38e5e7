"""What is in a copy of a dataset, and that it is of one moment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from accelerator import failpoints
from accelerator.copies import Circumstances, CopyFormat, CopyMaker
from accelerator.database import Database
from accelerator.errors import QueryInterrupted
from accelerator.freshness import Freshness
from tests.query_builder import AS_OF_MS, ROWS, data_file

BOTH = pytest.mark.parametrize("format_", list(CopyFormat))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with data_file(tmp_path / "data") as opened:
        yield opened


def around(tmp_path: Path, live: Mapping[str, Freshness] | None = None) -> Circumstances:
    return Circumstances(live or {}, AS_OF_MS + 1_000, "1.2.3", tmp_path / "spill")


def read(path: Path, query: str) -> list[tuple[Any, ...]]:
    """The result over relation `orders` of either format."""
    with duckdb.connect(":memory:" if path.suffix == ".parquet" else str(path)) as reader:
        if path.suffix == ".parquet":
            reader.execute(f"CREATE VIEW orders AS FROM '{path}'")
        return reader.execute(query).fetchall()


def metadata(path: Path) -> dict[str, str]:
    query = f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')"
    return dict(read(path, query))


@BOTH
def test_a_copy_reads_back_equal_to_the_dataset(
    database: Database, tmp_path: Path, format_: CopyFormat
) -> None:
    """Names, types and values, those included that Arrow would make text of: JSON, DECIMAL."""
    path = tmp_path / f"orders.{format_}"
    written = CopyMaker(database, "orders").write(path, format_, around(tmp_path))
    assert written is not None
    assert (written.rows, written.nbytes) == (ROWS, path.stat().st_size)
    cursor = database.cursor()
    for query in ("DESCRIBE orders", "SELECT * FROM orders ORDER BY id"):
        assert read(path, query) == cursor.execute(query).fetchall(), query
    cursor.close()


def test_positions_and_time_are_in_the_file(database: Database, tmp_path: Path) -> None:
    """dynaduck.checkpoints and dynaduck.copy of a database; the same as metadata of Parquet."""
    made = CopyMaker(database, "orders")
    for format_ in CopyFormat:
        made.write(tmp_path / f"orders.{format_}", format_, around(tmp_path))
    in_database = read(
        tmp_path / "orders.duckdb",
        "SELECT shard_id, generation FROM dynaduck.checkpoints ORDER BY 1",
    )
    assert in_database == [("s-0", 3), ("s-1", 3), ("s-2", 3)], "those of the rows, no older ones"
    told = read(
        tmp_path / "orders.duckdb",
        "SELECT epoch_ms(as_of), state, rows, generation FROM dynaduck.copy",
    )
    assert told == [(AS_OF_MS, "Ready", ROWS, 3)]
    texts = metadata(tmp_path / "orders.parquet")
    shards = [row["shard_id"] for row in json.loads(texts["dynaduck.checkpoints"])]
    assert sorted(shards) == ["s-0", "s-1", "s-2"]
    assert texts["dynaduck.as_of"] == "2026-01-02T03:04:05.678000Z"
    assert json.loads(texts["dynaduck.gaps"]) == []


class Meddling(Mapping[str, Freshness]):
    """Commits a change of rows and positions at the moment at which it is first asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.has_meddled = False

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> Freshness:
        return {"another": Freshness()}[key]

    def __iter__(self) -> Iterator[str]:
        if not self.has_meddled:
            self.has_meddled = True
            with self._database.transaction() as cursor:
                cursor.execute('DELETE FROM dynaduck."orders__rows" WHERE id < 500')
                cursor.execute("UPDATE dynaduck.generations SET positions_generation = 2")
        yield "another"


@BOTH
def test_rows_and_positions_are_of_one_transaction(
    database: Database, tmp_path: Path, format_: CopyFormat
) -> None:
    """What the writer commits while a copy is made is in all of it or in nothing of it."""
    path = tmp_path / f"orders.{format_}"
    live = Meddling(database)
    written = CopyMaker(database, "orders").write(path, format_, around(tmp_path, live))
    assert live.has_meddled
    assert written is not None
    assert written.rows == ROWS
    if format_ is CopyFormat.PARQUET:
        shards = json.loads(metadata(path)["dynaduck.checkpoints"])
    else:
        shards = read(path, "FROM dynaduck.checkpoints")
    assert len(shards) == 3


def test_rows_that_are_not_whole_are_not_copied(database: Database, tmp_path: Path) -> None:
    """While the first snapshot runs there is nothing that a reader could rely on."""
    with database.transaction() as cursor:
        cursor.execute("UPDATE dynaduck.generations SET snapshot_state = 'running'")
    path = tmp_path / "orders.parquet"
    assert CopyMaker(database, "orders").write(path, CopyFormat.PARQUET, around(tmp_path)) is None
    assert not path.exists()


def test_a_stop_ends_the_copy(database: Database, tmp_path: Path) -> None:
    """Before it begins and while it is written; the service's own connections live on."""
    made = CopyMaker(database, "orders")
    with failpoints.on("copy_rows", made.stop), pytest.raises(QueryInterrupted):
        made.write(tmp_path / "orders.duckdb", CopyFormat.DUCKDB, around(tmp_path))
    with pytest.raises(QueryInterrupted):
        made.write(tmp_path / "again.duckdb", CopyFormat.DUCKDB, around(tmp_path))
    assert not database.is_invalidated()


@BOTH
def test_a_wide_table_is_written_with_small_means(
    database: Database, tmp_path: Path, format_: CopyFormat
) -> None:
    """600 columns: the row groups are smaller, so that one fits in memory."""
    columns = ", ".join(f"i + {n} AS c{n}" for n in range(600))
    with database.transaction() as cursor:
        cursor.execute("DROP VIEW orders")
        cursor.execute(f"CREATE TABLE dynaduck.wide AS SELECT {columns} FROM range(12000) t(i)")
        cursor.execute("CREATE VIEW orders AS FROM dynaduck.wide")
    path = tmp_path / f"orders.{format_}"
    written = CopyMaker(database, "orders").write(path, format_, around(tmp_path))
    assert written is not None
    assert read(path, "SELECT count(*), sum(c599) FROM orders") == [
        (12_000, sum(range(599, 12_599)))
    ]
