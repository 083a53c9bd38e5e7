"""How far a dataset got, as the data file has it, for those who only tell others of it.

Owns one read of what is committed, in a transaction of its own. Must not know who asks: the writer
and its thread are not needed, and not disturbed.
"""

from __future__ import annotations

from accelerator.catalog import Catalog, Generation
from accelerator.database import Database
from checkpoints.progress import DatasetProgress
from checkpoints.store import DuckDBCheckpointStore


def stored_progress(database: Database, dataset: str) -> DatasetProgress | None:
    """The positions that are read and the scan that fills rows; None before the first start.

    Any thread. Only what is committed is seen.

    Raises:
        AcceleratorError: the file is closed or was given up; ask again.
    """
    cursor = database.cursor()
    with database.translated():
        try:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            newest = _newest(Catalog(cursor, dataset).generations())
            if newest is None:
                return None
            store = DuckDBCheckpointStore(cursor)
            segments = store.load_segments(dataset, newest.generation)
            return DatasetProgress(
                dataset,
                newest.positions_generation,
                newest.identity,
                store.load_shards(dataset, newest.positions_generation),
                segments,
                store.open_gaps(dataset, newest.positions_generation),
                newest.generation if segments else None,
            )
        finally:
            cursor.close()


def _newest(generations: tuple[Generation, ...]) -> Generation | None:
    """The shadow where there is one: its positions are read, and its rows are filled."""
    by_role = {each.role: each for each in generations}
    return by_role.get("shadow") or by_role.get("live")
