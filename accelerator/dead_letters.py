"""Changes that could not be applied: what is kept of them, and how they leave.

Owns reading and dropping rows of `dynaduck.dead_letters`; the dataset writes them, in the
transaction of the group they came with. Writer's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelerator.database import Database
from accelerator.statements import count, rows


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row. `record` is the DynamoDB JSON of its Keys and NewImage; `key` names the row it was
    meant for, None where that could not be read.
    """

    shard_id: str | None
    sequence_number: str | None
    event_name: str
    record: str
    error: str
    at_ms: int
    key: str | None


class DeadLetters:
    """Those of one dataset."""

    def __init__(self, database: Database, dataset: str) -> None:
        self._database = database
        self._dataset = dataset

    def count(self) -> int:
        with self._database.translated():
            return count(
                self._database.writer,
                "SELECT count(*) FROM dynaduck.dead_letters WHERE dataset = ?",
                [self._dataset],
            )

    def all(self) -> tuple[DeadLetter, ...]:
        """Oldest first."""
        with self._database.translated():
            found = rows(
                self._database.writer,
                'SELECT shard_id, sequence_number, event_name, record, error, epoch_ms("at"), key '
                'FROM dynaduck.dead_letters WHERE dataset = ? ORDER BY "at", sequence_number',
                [self._dataset],
            )
        return tuple(DeadLetter(*row) for row in found)

    def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Removes exactly these; one that came since stays, also for the same key."""
        dropped = 0
        with self._database.transaction() as cursor:
            for letter in letters:
                dropped += count(
                    cursor,
                    "DELETE FROM dynaduck.dead_letters WHERE dataset = ? AND record = ? "
                    'AND "at" = epoch_ms(CAST(? AS BIGINT)) '
                    "AND sequence_number IS NOT DISTINCT FROM ?",
                    [self._dataset, letter.record, letter.at_ms, letter.sequence_number],
                )
        return dropped
