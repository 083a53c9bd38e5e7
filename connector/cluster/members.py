"""The nodes of a cluster as one of them sees them, and as they are told of it.

Owns the announcing of this node, the watch on who leads, and the removal of the dead. Must not
know how a node leads or follows. Only rows of the same pipeline count: a cluster may have others.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from checkpoints.clock import Clock
from checkpoints.errors import CheckpointError
from checkpoints.membership import Member, Membership

DIAL_S: Final = 1.0
LEADER: Final = "leader"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LeaderSeen:
    """Who led when the members were last read. `since_s`: when its heartbeat was seen to move."""

    node: str | None = None
    since_s: float | None = None
    lag_ms: int | None = None
    heartbeat: int = -1


class Members:
    """`step` belongs to one thread. `describe` is this node's row as it should be now."""

    def __init__(
        self,
        membership: Membership,
        describe: Callable[[], Member],
        seen: LeaderSeen,
        clock: Clock,
        *,
        every_s: float,
    ) -> None:
        self._membership = membership
        self._describe = describe
        self._seen = seen
        self._clock = clock
        self._every_s = every_s
        self._own: Member | None = None
        self.known: tuple[Member, ...] = ()

    def step(self, now_s: float) -> float | None:
        """Announces this node, reads the others, and removes rows of the dead."""
        try:
            self._own = self._membership.announce(self._describe())
            members = self._membership.members()
            self.known = tuple(m for m in members if m.pipeline == self._own.pipeline)
            self._watch(self._clock.monotonic_s())
            for node in self._membership.sweep(self._own.node, dial):
                log.info("a dead member's row is removed", node=node)
        except CheckpointError as error:
            log.warning("the members cannot be read or told", error=str(error), hint=error.hint)
        return now_s + self._every_s

    def leave(self) -> None:
        """Raises StoreError."""
        if self._own is not None:
            self._membership.leave(self._own)

    def _watch(self, now_s: float) -> None:
        """An announcement is a sign of life only when its heartbeat moved since the last look."""
        leaders = [member for member in self.known if member.role == LEADER]
        if not leaders:
            return
        leader = max(leaders, key=lambda member: member.epoch)
        seen = self._seen
        if (leader.node, leader.heartbeat) != (seen.node, seen.heartbeat):
            seen.node, seen.heartbeat, seen.since_s = leader.node, leader.heartbeat, now_s
            seen.lag_ms = leader.lag_ms


def ready_address(members: Sequence[Member], pipeline: str) -> str | None:
    """Where a query of this pipeline may go: any ready node that listens. Takes no lease."""
    ready = [m for m in members if m.pipeline == pipeline and m.is_ready and m.flight_addr]
    return min(ready, key=lambda m: (m.role == LEADER, m.lag_ms)).flight_addr if ready else None


def dial(address: str) -> bool:
    """Whether somebody listens at host:port; nobody does at an empty address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return False
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=DIAL_S):
            return True
    except OSError:
        return False
