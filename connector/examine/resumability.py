"""Whether what a data file holds can be gone on from.

Owns the look at a file that no service has open, and the question to AWS whether it still has what
the stored positions name. Judges by the recovery policy that the service follows at start; changes
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from accelerator.database import Database
from accelerator.dataset import Dataset as Replica
from accelerator.outcome import StoredDataset
from connector.config import Dataset, Runtime
from connector.errors import PositionLost, SourceError
from connector.examine.findings import Verdict
from connector.recovery import (
    Halt,
    Policy,
    Refresh,
    Refuse,
    Reinitialize,
    Stored,
    StreamOnly,
    Wait,
    covered_until_ms,
    decide_start,
)
from connector.source import Source, TableDescription
from connector.spec import spec_of
from connector.stream.lineage import DONE

POSITIONS_TRIED: Final = 20
HOUR_MS: Final = 3_600_000


def stored_dataset(runtime: Runtime, settings: Dataset) -> StoredDataset | None:
    """What the file holds of the dataset, None where it or the file is not there.

    Raises:
        AcceleratorError: the file is held, damaged, too new, or another table's.
    """
    if not runtime.replica_file.exists():
        return None
    database = Database.open(
        runtime.replica_file, memory_limit_bytes=runtime.memory_limit_bytes, read_only=True
    )
    try:
        # A table of the history would be made where there is none; nothing may be made here.
        return Replica(database, replace(spec_of(settings), history=None)).load()
    finally:
        database.close()


def judge(
    stored: StoredDataset, table: TableDescription, settings: Dataset, source: Source
) -> tuple[Verdict, str, str]:
    """The verdict, its sentence, and the fix."""
    policy = Policy(settings.initial_snapshot, settings.invalid_checkpoint_behavior)
    found = Stored(
        stored.live_identity,
        stored.generation,
        () if stored.is_frozen else stored.shards,
        is_loaded=stored.snapshot_state != "running",
        fingerprint=stored.live_fingerprint or "",
        open_gaps=stored.open_gaps,
    )
    decision = decide_start(found, table, policy, spec_of(settings).fingerprint, table.at_ms)
    match decision:
        case Halt():
            return Verdict.FAILED, decision.reason.sentence, decision.reason.remedy
        case Refuse(error) | Wait(error):
            return Verdict.FAILED, str(error), error.hint
        case Reinitialize():
            said = f"The next start loads the table anew: {decision.sentence}."
            return Verdict.NOTE, said, "Nothing to do."
        case StreamOnly():
            said = "The next start goes on without a snapshot, with a gap: changes were lost."
            return Verdict.NOTE, said, "`dynaduck refresh DATASET` closes the gap."
        case Refresh(cause):
            said = f"The next start takes a new snapshot beside the data: {cause}."
            return Verdict.NOTE, said, "Nothing to do."
        case _:
            pass
    lost = _lost(stored, source)
    if lost is not None:
        verdict = Verdict.NOTE if policy.restarts else Verdict.FAILED
        return verdict, f"What it points to is gone: {lost}", lost.hint
    covered_ms = covered_until_ms(stored.shards)
    age = "" if covered_ms is None else f", {(table.at_ms - covered_ms) / HOUR_MS:.1f} h old"
    return Verdict.OK, f"{len(stored.shards)} shards{age}; it can be resumed.", ""


def _lost(stored: StoredDataset, source: Source) -> PositionLost | None:
    """Opens the positions as a start would; any other trouble is found by other checks."""
    stream_arn = stored.identity.stream_arn
    if stream_arn is None:
        return None
    unfinished = [shard for shard in stored.shards if shard.state not in DONE]
    for shard in unfinished[:POSITIONS_TRIED]:
        try:
            source.open_iterator(stream_arn, shard.shard_id, shard.position)
        except PositionLost as error:
            return error
        except SourceError:
            return None
    return None
