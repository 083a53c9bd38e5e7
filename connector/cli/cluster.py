"""`dynaduck cluster status`: who leads, who follows, how far each is. Asks table and bucket alone.

It works while no node does: the lease, the members' own rows and the log are all there is to see.
A single look cannot tell a leader that lives from one that died a moment ago, since no clock is
compared with a row; `--observe` looks twice.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from accelerator.segment import SegmentFile
from checkpoints.errors import LogCorrupt
from checkpoints.keys import PipelineKey
from checkpoints.kv import ItemStore
from checkpoints.lease import LEASE_TIMES, LeaseRow, LeaseStore
from checkpoints.membership import Member, Membership
from checkpoints.object_store import ObjectStore
from checkpoints.progress import Progress
from checkpoints.segment import SegmentHeader
from checkpoints.segment_log import SegmentLog
from connector.cli.app import ANY_SETTING, ConfigFile, Exit, app, configuration, exits
from connector.clock import SystemClock
from connector.config import Config
from connector.config.durations import parse_duration
from connector.errors import ConfigError
from connector.storage import cluster_of, log_objects, offset_items, pipeline_of
from connector.surface.status import rfc3339

cluster_app = typer.Typer(help="A leader and its followers.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")

LOOK_EVERY_S: Final = 0.5
LEAST_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class LogHead:
    """The last segment, and the number of bases."""

    index: int
    epoch: int | None
    kind: str | None
    at_ms: int | None
    newest_base: int | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One look. `renewed` is None where nobody waited for a sign of life."""

    pipeline: str
    cluster: str
    lease: LeaseRow | None
    renewed: bool | None
    members: tuple[Member, ...]
    head: LogHead | None
    positions: Progress | None = None

    @property
    def has_leader(self) -> bool:
        held = self.lease is not None and not self.lease.is_released
        return held and self.renewed is not False

    def behind(self, member: Member) -> int | None:
        """Segments that the log has and the member's rows have not."""
        return None if self.head is None else max(0, self.head.index - member.applied_index)


@cluster_app.command(context_settings=ANY_SETTING)
@exits
def status(
    context: typer.Context,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    observe: Annotated[
        str, typer.Option(metavar="D", help="Wait up to this for the leader's next sign of life.")
    ] = "0s",
    positions: Annotated[
        bool, typer.Option("--positions", help="Also how far each shard is, by the log.")
    ] = False,
) -> Exit:
    """Leader, epoch, followers, lag, and the head of the log. Exit status 4: nobody leads."""
    resolved = configuration(config, None, context.args, datasets_wanted=False)
    found = look(resolved, observe_s=_duration_s(observe), with_positions=positions)
    if as_json:
        sys.stdout.write(json.dumps(document(found), indent=2) + "\n")
    else:
        # Cut columns would hide names: a narrow terminal wraps its lines instead.
        _print(found, Console(width=max(LEAST_WIDTH, Console().width)))
    return Exit.DONE if found.has_leader else Exit.NOT_READY


def look(config: Config, *, observe_s: float, with_positions: bool) -> ClusterStatus:
    """Raises ConfigError, CheckpointError."""
    pipeline, cluster = pipeline_of(config.runtime), cluster_of(config.runtime)
    items, clock = offset_items(config), SystemClock()
    lease, renewed = _observed(items, pipeline, observe_s)
    members = Membership(items, cluster, clock).members()
    store = log_objects(config) if config.runtime.wal_s3_bucket else None
    return ClusterStatus(
        pipeline.pk,
        cluster,
        lease,
        renewed,
        tuple(member for member in members if member.pipeline == pipeline.pk),
        None if store is None else _head(store, pipeline),
        _log(store, pipeline).head().progress if store is not None and with_positions else None,
    )


def document(found: ClusterStatus) -> dict[str, Any]:
    """For programs: what `status` shows, under stable names."""
    lease = found.lease
    leader = None
    if lease is not None:
        leader = {
            "node": lease.owner_node,
            "epoch": lease.epoch,
            "heartbeat": lease.heartbeat,
            "released": lease.is_released,
            "initialized": lease.is_initialized,
            "renewed": found.renewed,
        }
    shards = None
    if found.positions is not None:
        shards = {
            name: [
                {"shard": s.shard_id, "position": s.position.encode(), "records": s.records}
                for s in progress.shards
            ]
            for name, progress in found.positions.items()
        }
    return {
        "pipeline": found.pipeline,
        "cluster_id": found.cluster,
        "has_leader": found.has_leader,
        "lease": leader,
        "members": [
            {**asdict(member), "segments_behind": found.behind(member)} for member in found.members
        ],
        "log": None if found.head is None else asdict(found.head),
        "positions": shards,
    }


def _observed(
    items: ItemStore, pipeline: PipelineKey, observe_s: float
) -> tuple[LeaseRow | None, bool | None]:
    leases = LeaseStore(items, pipeline)
    first = leases.read()
    if first is None or first.is_released or observe_s <= 0:
        return first, None
    ends_s = time.monotonic() + observe_s
    while time.monotonic() < ends_s:
        time.sleep(LOOK_EVERY_S)
        again = leases.read()
        if again is None or again.sign_of_life != first.sign_of_life:
            return again, True
    # Renewals are 10 s apart: a shorter look that saw none proves nothing.
    return first, None if observe_s < LEASE_TIMES.observe_s else False


def _head(store: ObjectStore, pipeline: PipelineKey) -> LogHead | None:
    log = _log(store, pipeline)
    bases = log.bases()
    newest_base = bases[-1] if bases else None
    index = log.last_index()
    if index == 0:
        return None
    header = _header(store.get(pipeline.segment_key(index)))
    if header is None:
        return LogHead(index, None, None, None, newest_base)
    return LogHead(index, header.epoch, header.kind.value, header.at_ms, newest_base)


def _header(data: bytes | None) -> SegmentHeader | None:
    """What `segments verify` would call a fault is no reason to show nothing of the cluster."""
    try:
        return None if data is None else SegmentFile().header(data)
    except LogCorrupt:
        return None


def _log(store: ObjectStore, pipeline: PipelineKey) -> SegmentLog[Any]:
    return SegmentLog(store, pipeline, SegmentFile(), writer="status")


def _print(found: ClusterStatus, console: Console) -> None:
    console.print(f"pipeline {found.pipeline}, cluster {found.cluster}", highlight=False)
    console.print(_leader(found), highlight=False)
    console.print(_log_line(found.head), highlight=False)
    if not found.members:
        console.print("No node has announced itself.", highlight=False)
        return
    table = Table(box=None, header_style="bold")
    for column in ("node", "role", "ready", "flight", "applied", "behind", "lag"):
        table.add_column(column, no_wrap=True)
    for member in sorted(found.members, key=lambda m: (m.role, m.node)):
        behind = found.behind(member)
        table.add_row(
            member.node,
            member.role,
            "yes" if member.is_ready else "no",
            member.flight_addr or "-",
            f"{member.applied_index:,}",
            "-" if behind is None else f"{behind:,}",
            f"{member.lag_ms / 1000:.1f} s",
        )
    console.print(table)
    for name, lines in _positions(found.positions or {}):
        console.print(f"positions of {name}", highlight=False)
        for line in lines:
            console.print(f"  {line}", highlight=False)


def _leader(found: ClusterStatus) -> str:
    lease = found.lease
    if lease is None:
        return "There is no lease: nobody has ever led this pipeline."
    if lease.is_released:
        return f"Nobody leads: {lease.owner_node} has released epoch {lease.epoch}."
    said = f"{lease.owner_node} leads, epoch {lease.epoch}"
    if found.renewed is None:
        return f"{said} (heartbeat {lease.heartbeat})."
    if found.renewed:
        return f"{said}, and renews."
    return f"{said}, and gave no sign of life while it was observed."


def _log_line(head: LogHead | None) -> str:
    if head is None:
        return "The log is empty."
    at = "" if head.at_ms is None else f", appended {rfc3339(head.at_ms)}"
    base = "no base yet" if head.newest_base is None else f"newest base at {head.newest_base:,}"
    return f"The log's head is segment {head.index:,} of epoch {head.epoch or '?'}{at}; {base}."


def _positions(progress: Progress) -> Sequence[tuple[str, list[str]]]:
    return [
        (
            name,
            [f"{s.shard_id}  {s.position.encode()}  {s.records:,} records" for s in one.shards],
        )
        for name, one in progress.items()
    ]


def _duration_s(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--observe {text!r}: {error}") from error
