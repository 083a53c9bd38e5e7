"""What a node knows of itself and of who leads, and the health that follows while it does not.

Owns the node's view as a value and the verdict on a follower's dataset. Pure. Must not know how a
view comes about. A leader's health is judged by its readers, as on one machine.

A follower is Ready when its rows are whole, the log was read to its end lately, and the leader has
given a sign of life lately: an idle leader gives one every 10 s, a dead one gives none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from accelerator.outcome import SnapshotState, StoredDataset
from checkpoints.positions import ShardCheckpoint
from connector import reasons
from connector.health import DatasetState, Health
from connector.reasons import Reason, Trouble
from connector.recovery import SENTENCES, Cause, covered_until_ms

SILENT_AFTER_S: Final = 25.0
"""Two signs of life in a row may fail to come, and the lease is not lost yet."""

STALE_LOOKS: Final = 5
LEAST_STALE_S: Final = 5.0


class Role(StrEnum):
    """RECOVERING before the rows stand at the log's end for the first time; FENCED is for good."""

    RECOVERING = "recovering"
    FOLLOWER = "follower"
    ELECTED = "elected"
    LEADER = "leader"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class NodeView:
    """What this node knows now.

    epoch           of its own lease while it has one, else of the last segment
    applied_index   the last segment in the rows
    head_index      the last segment that it has seen in the log
    looked_s        seconds since the log was last read to its end; None before the first time
    leader          the node that leads, as it says itself; None where none is known
    leader_age_s    seconds since its last sign of life
    leader_lag_ms   how far it is behind the stream, as it says
    trouble         what stands in the way now
    """

    node: str
    mode: str
    role: Role
    epoch: int = 0
    applied_index: int = 0
    head_index: int = 0
    looked_s: float | None = None
    leader: str | None = None
    leader_age_s: float | None = None
    leader_lag_ms: int | None = None
    is_paused: bool = False
    trouble: Trouble | None = None
    poll_s: float = 1.0
    silent_after_s: float = SILENT_AFTER_S

    @property
    def lag_ms(self) -> int | None:
        """Behind the stream, as far as a follower can tell: what the leader said, aged."""
        if self.leader_lag_ms is None or self.leader_age_s is None:
            return None
        return self.leader_lag_ms + int(1000 * self.leader_age_s)


def following(
    view: NodeView, stored: StoredDataset | None, shards: tuple[ShardCheckpoint, ...]
) -> Health:
    """The verdict on a dataset of a node that does not lead."""
    state, blocking = _verdict(view, stored)
    is_whole = stored is not None and _is_whole(stored)
    return Health(
        state,
        tuple(blocking),
        lag_max_ms=view.lag_ms,
        lag_sum_ms=view.lag_ms,
        headroom_ms=None,
        covered_until_ms=covered_until_ms(shards) if is_whole else None,
        shards_active=0,
    )


def _is_whole(stored: StoredDataset) -> bool:
    loaded = stored.live_snapshot_state in (SnapshotState.DONE, SnapshotState.NONE)
    return loaded and not stored.is_frozen and not stored.open_gaps


def _verdict(view: NodeView, stored: StoredDataset | None) -> tuple[DatasetState, list[Reason]]:
    if view.role is Role.FENCED:
        return DatasetState.ERROR, [reasons.fenced()]
    if view.trouble is not None and view.trouble.needs_person:
        return DatasetState.ERROR, [view.trouble.reason(blocks=True)]
    if view.role is Role.RECOVERING:
        return DatasetState.INITIALIZING, [reasons.recovering(view.applied_index), *_told(view)]
    if view.role is Role.ELECTED:
        return DatasetState.CATCHING_UP, [reasons.electing(view.epoch), *_told(view)]
    if stored is None:
        return DatasetState.INITIALIZING, [reasons.log_empty(), *_told(view)]
    if stored.open_gaps:
        return DatasetState.ERROR, [reasons.gap_open(len(stored.open_gaps))]
    if stored.is_frozen:
        return DatasetState.SNAPSHOTTING, [reasons.rebuilding(_why_frozen(stored))]
    if stored.live_snapshot_state == SnapshotState.RUNNING:
        return DatasetState.SNAPSHOTTING, [reasons.snapshot_running()]
    if stored.live_snapshot_state == SnapshotState.SCANNED:
        return DatasetState.CATCHING_UP, [reasons.snapshot_passing()]
    late = _late(view)
    if late:
        return DatasetState.LAGGING, [*late, *_told(view)]
    return DatasetState.READY, []


def _late(view: NodeView) -> list[Reason]:
    found = []
    stale_s = max(LEAST_STALE_S, STALE_LOOKS * view.poll_s)
    if view.looked_s is None or view.looked_s > stale_s:
        found.append(reasons.log_unread(view.looked_s))
    if view.leader_age_s is None or view.leader_age_s > view.silent_after_s:
        found.append(reasons.leader_silent(view.leader_age_s))
    return found


def _why_frozen(stored: StoredDataset) -> str:
    causes = [gap.cause for gap in stored.open_gaps]
    return SENTENCES[Cause(causes[0])] if causes else "the leader began a new snapshot"


def _told(view: NodeView) -> list[Reason]:
    return [] if view.trouble is None else [view.trouble.reason(blocks=True)]
