"""What follows from what is stored and what is found: at start, and when reading meets a loss.

Owns the recovery policy. Pure: stored state, the table's description, AWS time and settings in, a
decision out. Must not know how one is carried out, nor read anything itself: a checkpoint store
that cannot be read is retried by the caller, and never shown here as one that holds nothing.

    start ──▶ FirstStart | StreamOnly      nothing is stored
          ──▶ Resume                       go on, and finish the snapshot if it is unfinished
          ──▶ Refresh                      the data is right, but wanted anew: both are kept fresh
          ──▶ Drain                        another stream has replaced this one: read it to its end
          ──▶ Reinitialize | StreamOnly    something is lost, and policy is `restart`
          ──▶ Halt                         something is lost, and policy is `error`
          ──▶ Wait                         it would be loaded anew, but the stream is off
          ──▶ Refuse                       the service must not start: exit status 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from checkpoints.positions import Gap, ShardCheckpoint, ShardState, SourceIdentity
from checkpoints.progress import DatasetProgress
from connector.config.settings import InitialSnapshot, InvalidCheckpointBehavior
from connector.errors import DynaduckError, StartRefused, StreamDisabled, ViewTypeUnusable
from connector.reasons import Reason
from connector.source import TableDescription
from connector.stream.coverage import HOUR_MS, GapCause
from connector.stream.discovery import StreamFacts
from connector.stream.lineage import DONE

STALE_AFTER_MS: Final = 18 * HOUR_MS
"""A checkpoint that old at start is not resumed: trimming might win the race."""

USABLE_VIEWS: Final = frozenset({"NEW_IMAGE", "NEW_AND_OLD_IMAGES"})


class Cause(StrEnum):
    """Why positions cannot be read on from: stable codes, also of `dynaduck.gaps.cause`."""

    CHECKPOINT_STALE = "checkpoint_stale"
    RETENTION_EXCEEDED = GapCause.RETENTION_EXCEEDED.value
    TRIMMED = GapCause.TRIMMED.value
    SHARD_GONE = GapCause.SHARD_GONE.value
    PARENT_NEVER_SEEN = GapCause.PARENT_NEVER_SEEN.value
    STREAM_REPLACED = "stream_replaced"
    STREAM_GONE = "stream_gone"
    TABLE_RECREATED = "table_recreated"
    DISK_LOST = "disk_lost"


SENTENCES: Final = {
    Cause.CHECKPOINT_STALE: "the checkpoint is older than 18 hours",
    Cause.RETENTION_EXCEEDED: "a shard was not read for longer than the stream keeps changes",
    Cause.TRIMMED: "changes were trimmed from the stream before they were read",
    Cause.SHARD_GONE: "a shard vanished before it was read to its end",
    Cause.PARENT_NEVER_SEEN: "a shard came and went without being seen",
    Cause.STREAM_REPLACED: "the stream was turned off and on again, and changes between are lost",
    Cause.STREAM_GONE: "the stream no longer exists",
    Cause.TABLE_RECREATED: "the table was deleted and made again",
    Cause.DISK_LOST: "the data file is gone, and what it held is not in the stream any more",
}


class RefreshCause(StrEnum):
    """Why data that is right is loaded anew."""

    ALWAYS = "initial_snapshot_always"
    SETTINGS_CHANGED = "settings_changed"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decide. `stale_after_ms` is for tests with a shorter retention."""

    initial_snapshot: InitialSnapshot = InitialSnapshot.AUTO
    invalid_checkpoint: InvalidCheckpointBehavior = InvalidCheckpointBehavior.ERROR
    stale_after_ms: int = STALE_AFTER_MS

    @property
    def restarts(self) -> bool:
        return self.invalid_checkpoint is InvalidCheckpointBehavior.RESTART


@dataclass(frozen=True, slots=True)
class Stored:
    """One generation of positions as it was found.

    is_loaded     its snapshot is done, or none was wanted: what is served is whole
    fingerprint   of the settings that shape rows, when its snapshot began
    open_gaps     of this generation
    shadow        the unfinished generation that was to replace this one, if there is one
    """

    identity: SourceIdentity
    generation: int
    shards: tuple[ShardCheckpoint, ...]
    is_loaded: bool
    fingerprint: str = ""
    open_gaps: tuple[Gap, ...] = ()
    shadow: Stored | None = None


@dataclass(frozen=True, slots=True)
class FirstStart:
    """Begin a generation with a snapshot."""


@dataclass(frozen=True, slots=True)
class StreamOnly:
    """Begin a generation without a snapshot.

    With a cause it reads all that the stream still has and writes a gap row, since the rows miss
    what was lost; `clears` the old rows first where they are another table's.
    """

    cause: Cause | None = None
    clears: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on from the stored positions; `scans` on from the stored segments where those remain."""

    scans: bool


@dataclass(frozen=True, slots=True)
class Refresh:
    """Load a shadow from the same positions; `resumes` the one that was begun."""

    cause: RefreshCause
    resumes: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """Read the old stream to its end, then ask again: the old one has what leads to the break."""

    stream_arn: str


@dataclass(frozen=True, slots=True)
class Reinitialize:
    """Freeze the data and load a new generation in a shadow; `resumes` the one that was begun."""

    cause: Cause
    resumes: bool = False

    @property
    def sentence(self) -> str:
        return SENTENCES[self.cause]


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop reading, keep the data queryable, state Error."""

    cause: Cause

    @property
    def reason(self) -> Reason:
        said = SENTENCES[self.cause]
        return Reason(
            self.cause.value,
            f"The checkpoint cannot be resumed: {said}. The data is kept as it was.",
            "Run `dynaduck refresh DATASET`, or set "
            "dynamodb_replication_invalid_checkpoint_behavior to restart and reload by SIGHUP: "
            "both load the table anew beside the old data.",
        )


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep the data, show `error` as state Error, and ask again when the table looks different."""

    error: DynaduckError


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not start; `error` says why and what to do."""

    error: DynaduckError


OnLoss: TypeAlias = StreamOnly | Drain | Reinitialize | Halt | Wait
AtStart: TypeAlias = FirstStart | Resume | Refresh | Refuse | OnLoss


def decide_start(
    stored: Stored | None, table: TableDescription, policy: Policy, fingerprint: str, now_ms: int
) -> AtStart:
    """What a service does that has just described its table. `now_ms` is AWS time."""
    if stored is None:
        return _first(table, policy)
    foreign = _foreign(stored.identity, table)
    if foreign is not None:
        return Refuse(foreign)
    shadow = stored.shadow
    resumes = shadow is not None and _is_resumable(shadow, table, policy, fingerprint, now_ms)
    loss = _loss_at_start(stored, table, policy, now_ms)
    if loss is Cause.STREAM_REPLACED and stored.identity.stream_arn is not None and not resumes:
        return Drain(stored.identity.stream_arn)
    if loss is not None and resumes:
        return Reinitialize(loss, resumes)  # whatever the policy, somebody has asked for it
    if loss is not None:
        return _after_loss(loss, table, policy, is_loaded=stored.is_loaded)
    if stored.fingerprint != fingerprint:
        return Refresh(RefreshCause.SETTINGS_CHANGED, resumes)
    if not stored.is_loaded:
        return Resume(scans=True)
    if policy.initial_snapshot is InitialSnapshot.ALWAYS:
        return Refresh(RefreshCause.ALWAYS, resumes)
    if resumes:
        return Refresh(RefreshCause.BY_HAND, resumes)
    return Resume(scans=False)


def decide_gaps(
    gaps: Sequence[Gap], table: TableDescription | None, policy: Policy, *, is_loaded: bool
) -> OnLoss | None:
    """What follows when the shard graph reports these."""
    if not gaps:
        return None
    return _after_loss(Cause(gaps[0].cause), table, policy, is_loaded=is_loaded)


def decide_stream(
    facts: StreamFacts, policy: Policy, *, is_drained: bool, is_loaded: bool
) -> OnLoss | None:
    """What follows from what discovery sees; None: read on. `is_drained`: the old stream is.

    A stream that is off, with none in its place, is read to its end and then waited for; its error
    is shown meanwhile. A table that is gone is waited for, too.
    """
    if facts.is_table_recreated:
        return _after_loss(Cause.TABLE_RECREATED, facts.table, policy, is_loaded=is_loaded)
    if facts.is_stream_replaced:
        if is_drained or facts.is_stream_gone or facts.identity.stream_arn is None:
            return _after_loss(Cause.STREAM_REPLACED, facts.table, policy, is_loaded=is_loaded)
        return Drain(facts.identity.stream_arn)
    if facts.is_stream_gone and facts.table is not None and not facts.is_table_gone:
        return _after_loss(Cause.STREAM_GONE, facts.table, policy, is_loaded=is_loaded)
    return None


def continues(recalled: DatasetProgress, table: TableDescription) -> bool:
    """Whether positions that outlived their data file are this table's, of this incarnation."""
    source = recalled.source
    return (
        source is not None
        and (source.table_id, source.table_arn) == (table.table_id, table.table_arn)
        and bool(recalled.shards)
    )


def covered_until_ms(shards: Sequence[ShardCheckpoint]) -> int | None:
    """AWS time before which every change is in the rows, by the stored positions alone.

    Shards that wait for their parent count with it. Where all are finished it is the last of them.
    """
    unfinished = [s for s in shards if s.state not in DONE and s.state is not ShardState.DISCOVERED]
    covered = [s.covered_until_ms for s in unfinished or shards]
    known = [ms for ms in covered if ms is not None]
    if not known:
        return None
    return min(known) if unfinished else max(known)


def unusable_stream(table: TableDescription) -> DynaduckError | None:
    """Why this table's stream cannot feed a replica, None if it can."""
    if table.stream_arn is None or not table.stream_enabled:
        return StreamDisabled(f"The table {table.table_name} has no stream that is on.")
    if table.stream_view_type not in USABLE_VIEWS:
        return ViewTypeUnusable(
            f"The stream of {table.table_name} has view type {table.stream_view_type}, which does "
            "not carry the new images."
        )
    return None


def _first(table: TableDescription, policy: Policy) -> AtStart:
    error = unusable_stream(table)
    if error is not None:
        return Refuse(error)
    if policy.initial_snapshot is InitialSnapshot.DISABLED:
        return StreamOnly()
    return FirstStart()


def _foreign(identity: SourceIdentity, table: TableDescription) -> StartRefused | None:
    """Whether the checkpoint is another table's. Made anew under its name, a table is the same."""
    stored, found = _place(identity.table_arn), _place(table.table_arn)
    if stored == found and identity.table_name == table.table_name:
        return None
    return StartRefused(
        f"The data file holds a checkpoint of {identity.table_arn}, not of {table.table_arn}.",
        hint="Give this dataset another name or data_dir, or set table and region back.",
    )


def _place(arn: str) -> tuple[str, ...]:
    """Region, account and resource of an ARN of any partition."""
    return tuple(arn.split(":", 5)[3:])


def _loss_at_start(
    stored: Stored, table: TableDescription, policy: Policy, now_ms: int
) -> Cause | None:
    if stored.identity.table_id != table.table_id:
        return Cause.TABLE_RECREATED
    if stored.open_gaps:
        return Cause(stored.open_gaps[0].cause)
    covered_ms = covered_until_ms(stored.shards)
    if covered_ms is not None and now_ms - covered_ms > policy.stale_after_ms:
        return Cause.CHECKPOINT_STALE
    if table.stream_arn is not None and stored.identity.stream_arn != table.stream_arn:
        return Cause.STREAM_REPLACED
    return None


def _is_resumable(
    shadow: Stored, table: TableDescription, policy: Policy, fingerprint: str, now_ms: int
) -> bool:
    """A gap starts a new generation; only an unbroken one goes on, and only under its settings."""
    return (
        shadow.fingerprint == fingerprint and _loss_at_start(shadow, table, policy, now_ms) is None
    )


def _after_loss(
    cause: Cause, table: TableDescription | None, policy: Policy, *, is_loaded: bool
) -> StreamOnly | Reinitialize | Halt | Wait:
    if not policy.restarts:
        return Halt(cause)
    error = None if table is None else unusable_stream(table)
    if error is not None:
        return Wait(error)
    # Rows that no snapshot has completed are no base to stream onto.
    if policy.initial_snapshot is InitialSnapshot.DISABLED and is_loaded:
        return StreamOnly(cause, clears=cause is Cause.TABLE_RECREATED)
    return Reinitialize(cause)
