"""Run as a process: applies numbered changes to a data file, group by group, until it is killed.

Each group of five changes writes the keys k0 to k4 with the group's number and adds one column, so
that rows, columns and positions all have to agree afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from accelerator.dataset import Dataset
from accelerator.spec import DatasetSpec
from tests.dataset_builder import begun, changes, open_database, put, sequence

KEYS = 5


def main(directory: str, groups: str) -> None:
    database = open_database(Path(directory))
    dataset = Dataset(database, DatasetSpec("orders"))
    stored = dataset.load()
    if stored is None:
        dataset = begun(database)
        stored = dataset.load()
    assert stored is not None
    number = stored.shards[0].position.sequence_number
    done = 0 if number is None else int(number) - int(sequence(0))
    for group in range(done // KEYS, int(groups)):
        values: dict[str, Any] = {"v": {"N": str(group)}, f"g{group}": {"S": "x"}}
        rows = [put(group * KEYS + n + 1, f"k{n}", **values) for n in range(KEYS)]
        dataset.apply([changes(rows)])
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
