"""Why a dataset is not Ready, in words: each reason a stable code, a sentence and the remedy.

Owns the sentences. Must not decide when one is given: that is `connector.health`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connector.stream.lineage import ShardView


@dataclass(frozen=True, slots=True)
class Reason:
    """`blocks` is False for what Ready may live with."""

    code: str
    sentence: str
    remedy: str
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error that lasts; `since_s` is the monotonic time of its first.

    needs_person   waiting will not mend it, so it makes state Error; it is retried all the same
    """

    code: str
    sentence: str
    remedy: str
    since_s: float
    needs_person: bool = False

    @classmethod
    def of(cls, error: Exception, since_s: float, *, where: str | None = None) -> Trouble:
        """What an error of any of our trees says; `where` names what it strikes."""
        said = str(error) or type(error).__name__
        return cls(
            getattr(error, "code", "internal"),
            said if where is None else f"{where}: {said}",
            getattr(error, "hint", "") or "It is tried again by itself; see the log.",
            since_s,
            bool(getattr(error, "needs_person", False)),
        )

    def reason(self, *, blocks: bool) -> Reason:
        return Reason(self.code, self.sentence, self.remedy, blocks)


def shard_troubles(views: Sequence[ShardView]) -> list[Trouble]:
    """One trouble for each kind of error, however many shards it strikes."""
    by_code: dict[str, list[ShardView]] = {}
    for view in views:
        if view.error is not None:
            by_code.setdefault(getattr(view.error, "code", "internal"), []).append(view)
    troubles = []
    for struck in by_code.values():
        oldest = min(struck, key=lambda view: view.error_since_s or 0.0)
        if oldest.error is not None and oldest.error_since_s is not None:
            where = some([view.shard_id for view in struck])
            troubles.append(Trouble.of(oldest.error, oldest.error_since_s, where=where))
    return troubles


def some(shard_ids: Sequence[str]) -> str:
    """One shard by its name, more by the first and their number."""
    if len(shard_ids) == 1:
        return f"Shard {shard_ids[0]}"
    return f"Shard {shard_ids[0]} and {len(shard_ids) - 1} more"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6_000 else f"{seconds / 3_600:.1f} hours"


# What blocks


def stopping() -> Reason:
    return Reason(
        "stopping", "The service drains what it has read and will exit.", "Start it again."
    )


def gap_open(gaps: int) -> Reason:
    return Reason(
        "gap_open",
        f"The stream has {_count(gaps, 'gap')}: changes were lost before they could be read.",
        "Run `dynaduck refresh DATASET`, or set dynamodb_replication_invalid_checkpoint_behavior "
        "to restart and reload by SIGHUP; dynaduck.gaps has the details.",
    )


def rebuilding(cause: str) -> Reason:
    return Reason(
        "rebuilding",
        f"The data served is from before a loss and is being loaded anew: {cause}.",
        "Wait; `dynaduck status` shows the progress.",
    )


def paused() -> Reason:
    return Reason("paused", "Reading was paused by hand.", "Run `dynaduck resume`.")


def commit_failing(error: Exception) -> Reason:
    return Reason(
        "commit_failing",
        f"Changes cannot be committed: {error}",
        getattr(error, "hint", "") or "It is tried again by itself; see the log.",
    )


def loop_failed(names: Sequence[str]) -> Reason:
    return Reason(
        "loop_failed",
        f"A part of the service is down: {', '.join(names)}.",
        "It is called again by itself; if it lasts, restart the service and report its log.",
    )


def starting() -> Reason:
    return Reason("starting", "The stream's shards are not known yet.", "Wait a moment.")


def snapshot_running() -> Reason:
    return Reason(
        "snapshot_running",
        "The snapshot is being read.",
        "Wait; `dynaduck status` shows the progress.",
    )


def snapshot_passing() -> Reason:
    return Reason(
        "snapshot_passing",
        "The snapshot is read, but the stream is not applied up to its end yet.",
        "Wait; `dynaduck status` shows which shard is behind.",
    )


def late(lag_ms: int | None, ready_lag_s: float, waiting: Sequence[str], *, again: bool) -> Reason:
    """`waiting`: closed shards whose children are not listed; `again`: it has been Ready before."""
    behind = "by an unknown time" if lag_ms is None else _span(lag_ms / 1000)
    sentence = f"The stream is applied {behind} behind; Ready allows {ready_lag_s:g} s."
    if waiting:
        sentence += f" {some(waiting)} ended, and no child is listed yet."
    return Reason(
        "lagging" if again else "catching_up",
        sentence,
        "Wait; if it grows, `dynaduck status` shows the shard that is behind and its error.",
    )


# What blocks on a node that does not lead


def recovering(applied_index: int) -> Reason:
    return Reason(
        "recovering",
        f"The rows are being made from the log; segment {applied_index} is applied.",
        "Wait; it takes as long as the newest base and the segments after it.",
    )


def electing(epoch: int) -> Reason:
    return Reason(
        "electing", f"This node takes over the log under epoch {epoch}.", "Wait a moment."
    )


def log_empty() -> Reason:
    return Reason(
        "log_empty",
        "The log does not hold this dataset yet.",
        "Wait for the leader's first segment; see that its configuration names the dataset.",
    )


def log_unread(looked_s: float | None) -> Reason:
    since = "yet" if looked_s is None else f"for {looked_s:.0f} s"
    return Reason(
        "log_unread",
        f"The log was not read to its end {since}.",
        "Check the way to the bucket and the permissions on it.",
    )


def leader_silent(age_s: float | None) -> Reason:
    since = "yet" if age_s is None else f"for {age_s:.0f} s"
    return Reason(
        "leader_silent",
        f"No leader has given a sign of life {since}: the rows may be older than they look.",
        "Another node takes over by itself within about 40 s; see `dynaduck cluster status`.",
    )


def fenced() -> Reason:
    return Reason(
        "fenced",
        "Another process writes to this log now, so this one reads the stream no more.",
        "Stop one of the two, or give them pipeline names of their own; then start this one again.",
    )


# What Ready may live with


def dead_letters(number: int) -> Reason:
    return Reason(
        "dead_letters",
        f"{_count(number, 'change')} could not be applied: see dynaduck.dead_letters.",
        "Mend the cause, then run `dynaduck dead-letters replay`, or drop them.",
        blocks=False,
    )


def publish_failing(error: Exception) -> Reason:
    return Reason(
        "publish_failing",
        f"The newest copy could not be published: {error}",
        getattr(error, "hint", "") or "It is tried again by itself; see the log.",
        blocks=False,
    )


def refreshing() -> Reason:
    return Reason(
        "refreshing",
        "A new snapshot is being loaded beside the data that is served.",
        "Nothing to do.",
        blocks=False,
    )


def retention_low(headroom_ms: int) -> Reason:
    return Reason(
        "retention_low",
        f"The stream drops what is unread in {max(0, headroom_ms) // 60_000} minutes.",
        "Find out what blocks the shard that is furthest behind: `dynaduck status`.",
        blocks=False,
    )


def rows_behind(table: str, error: Exception) -> Reason:
    return Reason(
        "rows_behind",
        f"The offset rows in table {table} are behind the data file: {error}",
        getattr(error, "hint", "") or "It is tried again by itself; the data does not wait for it.",
        blocks=False,
    )


def rows_contested(table: str) -> Reason:
    return Reason(
        "rows_contested",
        f"Another process writes the offset rows of this pipeline in table {table}.",
        "Give each copy a runtime.pipeline of its own, then start this one again.",
        blocks=False,
    )
