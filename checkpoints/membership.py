"""Who else is there: the rows of a cluster's nodes, found by Query and never by Scan.

Owns the member item, this node's own row, and the removal of rows that nobody renews. Must not
know who leads: that is the lease's. A row is removed only when its heartbeat stood still for 30 s
of this host's monotonic time AND its address does not answer, and only if it still stands there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from checkpoints.clock import Monotonic
from checkpoints.errors import RowCorrupt
from checkpoints.keys import NODE_PREFIX, cluster_pk, node_of_sk, node_sk
from checkpoints.kv import ABSENT, Item, ItemStore

ANNOUNCE_EVERY_S: Final = 10.0
DEAD_AFTER_S: Final = 30.0

Dial = Callable[[str], bool]
"""Whether a `flight_addr` answers."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node as it describes itself. `node` is made anew at each start.

    pipeline       partition key of the pipeline that it serves
    flight_addr    host:port of its Flight SQL server; empty without one
    epoch          of the lease while it leads, else 0
    applied_index  last segment in its rows
    lag_ms         behind the log's head as it sees it
    """

    node: str
    pipeline: str
    flight_addr: str = ""
    role: str = "follower"
    is_ready: bool = False
    epoch: int = 0
    applied_index: int = 0
    lag_ms: int = 0
    heartbeat: int = 0


class Membership:
    """The members of one cluster, and this node among them. For one thread."""

    def __init__(
        self,
        items: ItemStore,
        cluster_id: str,
        clock: Monotonic,
        *,
        dead_after_s: float = DEAD_AFTER_S,
    ) -> None:
        self._items = items
        self._pk = cluster_pk(cluster_id)
        self._clock = clock
        self._dead_after_s = dead_after_s
        self._seen: dict[str, tuple[int, float]] = {}

    def announce(self, member: Member) -> Member:
        """Writes this node's row, with the next heartbeat; makes it if it is not there."""
        sk = node_sk(member.node)
        item = _item_of(member)
        kept = self._items.update(
            self._pk,
            sk,
            {name: value for name, value in item.items() if name != "heartbeat"},
            {"node": member.node},
            increment="heartbeat",
        )
        if kept is not None:
            return _member_of(member.node, kept)
        first = replace(member, heartbeat=1)
        self._items.put(self._pk, sk, _item_of(first), ABSENT)
        return first

    def members(self) -> list[Member]:
        """All rows, dead ones too. Raises RowCorrupt when an item is no member."""
        return [
            _member_of(node_of_sk(sk), item)
            for sk, item in self._items.query(self._pk, NODE_PREFIX)
        ]

    def leave(self, member: Member) -> bool:
        """Deletes this node's own row on its way out; False if it is gone or newer."""
        return self._items.delete(self._pk, node_sk(member.node), {"heartbeat": member.heartbeat})

    def sweep(self, own_node: str, dial: Dial) -> list[str]:
        """Looks at every other row once, and removes those of dead nodes: their names."""
        started_s = self._clock.monotonic_s()
        members = [member for member in self.members() if member.node != own_node]
        replied_s = self._clock.monotonic_s()
        self._seen = {member.node: self._seen.get(member.node, (-1, 0.0)) for member in members}
        removed: list[str] = []
        for member in members:
            heartbeat, since_s = self._seen[member.node]
            if heartbeat != member.heartbeat:
                self._seen[member.node] = (member.heartbeat, replied_s)
            elif started_s - since_s >= self._dead_after_s and not dial(member.flight_addr):
                expected = {"heartbeat": member.heartbeat}
                if self._items.delete(self._pk, node_sk(member.node), expected):
                    removed.append(member.node)
        return removed


def _item_of(member: Member) -> Item:
    return {
        "node": member.node,
        "pipeline": member.pipeline,
        "flight_addr": member.flight_addr,
        "role": member.role,
        "ready": member.is_ready,
        "epoch": member.epoch,
        "applied_index": member.applied_index,
        "lag_ms": member.lag_ms,
        "heartbeat": member.heartbeat,
    }


def _member_of(node: str, item: Item) -> Member:
    texts = [item.get(name) for name in ("pipeline", "flight_addr", "role")]
    numbers = [item.get(name) for name in ("epoch", "applied_index", "lag_ms", "heartbeat")]
    is_ready = item.get("ready")
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(type(number) is int for number in numbers)
        or not isinstance(is_ready, bool)
    ):
        raise RowCorrupt(f"The row of node {node} is no member's: {dict(item)!r}.")
    pipeline, flight_addr, role = (str(text) for text in texts)
    epoch, applied_index, lag_ms, heartbeat = (int(number or 0) for number in numbers)
    return Member(
        node, pipeline, flight_addr, role, is_ready, epoch, applied_index, lag_ms, heartbeat
    )
