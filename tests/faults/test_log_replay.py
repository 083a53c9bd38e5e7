"""A column that widened just before a SIGKILL: the log that is left can be opened.

On opening a file DuckDB replays its log before its own functions and the type JSON are there, so a
log that holds ALTER … USING with one of them cannot be opened (1.5.5 and 2.0.1).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.spec import DatasetSpec
from tests.e2e.harness import REPOSITORY, environment

WIDEN_AND_DIE = """
import json, sys
import pyarrow as pa
from accelerator.batch import CHANGES, Batch
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.spec import DatasetSpec
from checkpoints.positions import KeyAttribute, SourceIdentity

dataset = Dataset(
    Database.open(sys.argv[1], memory_limit_bytes=200_000_000, checkpoint_threshold_bytes=2**40),
    DatasetSpec("t"),
)
dataset.load()
generation = dataset.begin(
    SourceIdentity("t", "arn:aws:dynamodb:eu-west-1:1:table/t", "id", None,
                   (KeyAttribute("k", "S", "HASH"),)),
    origin_ms=0, shards=(), segments=(), shadow=False, positions_generation=None, snapshot=True,
)
for number, value in enumerate(json.loads(sys.argv[2])):
    image = json.dumps({"k": {"S": str(number)}, "v": value})
    row = {name: None for name in CHANGES.names}
    row |= {"op": "snapshot", "ttl_delete": False, "image": image}
    changes = pa.Table.from_pylist([row], schema=CHANGES)
    dataset.apply([Batch(changes, generation, scan_ticket=dataset.open_scan_ticket())])
"""


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ('[{"N": "1"}, {"N": "2.5"}, {"N": "1E-100"}]', ["1", "2.5", "0." + "0" * 99 + "1"]),
        ('[{"N": "1"}, {"S": "x"}]', ["1", '"x"']),
        ('[{"NS": ["1"]}, {"NS": ["1E-100"]}]', [["1"], ["0." + "0" * 99 + "1"]]),
    ],
)
def test_a_widening_in_the_log_is_replayed(
    tmp_path: Path, values: str, shown: list[object]
) -> None:
    """Killed after the commit, before any checkpoint: the file opens, and every value is there."""
    path = tmp_path / "replica.duckdb"
    died = subprocess.run(
        [sys.executable, "-c", WIDEN_AND_DIE, str(path), values],
        # Behind the commit of the last value, before whatever checkpoints it.
        env=environment({"DYNADUCK_FAILPOINT": f"after_commit:kill:{len(shown)}"}),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert path.with_name("replica.duckdb.wal").stat().st_size > 0
    with pytest.raises(duckdb.Error, match="replaying WAL"):
        duckdb.connect(str(path))

    database = Database.open(path, memory_limit_bytes=200_000_000)
    assert Dataset(database, DatasetSpec("t")).load() is not None
    rows = database.cursor().execute("SELECT v FROM t ORDER BY k").fetchall()
    assert [value for (value,) in rows] == shown
    database.close()
