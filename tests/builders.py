"""Short words for long values: a lineage, a row of pages, a change.

`shard_tree("a>b,c d! e?>f")` lists six shards: `a` is closed and has the children `b` and `c`; `d`
is closed and childless; `e` still shows as open though it has a child.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from accelerator.batch import CHANGES
from checkpoints.positions import Position, ShardCheckpoint, ShardState
from connector.source import ListedShard
from connector.stream.lineage import Listing, PageRead

START_MS = 1_700_000_000_000
"""Where AWS time begins in tests. A whole second, as a Date header is."""

HOUR_MS = 3_600_000


def shard_tree(text: str) -> tuple[ListedShard, ...]:
    """The shards of a small language, in the order in which they are first named."""
    parents: dict[str, str | None] = {}
    closed: set[str] = set()
    for clause in text.split():
        head, _, tail = clause.partition(">")
        name = head.rstrip("!?")
        parents.setdefault(name, None)
        if head.endswith("!") or (tail and not head.endswith("?")):
            closed.add(name)
        for child in filter(None, tail.split(",")):
            child_name = child.rstrip("!")
            parents[child_name] = name
            if child.endswith("!"):
                closed.add(child_name)
    return tuple(
        ListedShard(name, parent, "1" * 21, "9" * 40 if name in closed else None)
        for name, parent in parents.items()
    )


def listing(
    text: str, *, at_ms: int = START_MS, status: str = "ENABLED", complete: bool = True
) -> Listing:
    """A listing of `shard_tree(text)` that begins and ends at `at_ms`."""
    return Listing(shard_tree(text), status, at_ms, at_ms, complete)


def pages(
    *counts: int, at_ms: int = START_MS, end: bool = False, first: int = 1
) -> Iterator[PageRead]:
    """One page for each count of records, a second apart, numbered on from `first`.

    With `end` the last page has no next iterator.
    """
    number = first
    for index, count in enumerate(counts):
        number += count
        page_ms = at_ms + 1000 * index
        yield PageRead(
            count,
            None if end and index == len(counts) - 1 else f"iterator-{index + 1}",
            sequence(number - 1) if count else None,
            page_ms if count else None,
            page_ms,
        )


def sequence(number: int) -> str:
    """A sequence number as AWS writes them: 21 digits at least."""
    return str(10**20 + number)


def row(
    shard_id: str,
    state: ShardState = ShardState.READING,
    *,
    parent: str | None = None,
    after: int | None = None,
    covered_ms: int | None = START_MS,
    records: int = 0,
) -> ShardCheckpoint:
    """A stored shard row, after record `after` or at the trim horizon."""
    position = Position.trim_horizon() if after is None else Position.after(sequence(after))
    if state in (ShardState.DRAINING, ShardState.FINISHED):
        position = Position.shard_end(position.sequence_number)
    return ShardCheckpoint(shard_id, parent, state, position, records, covered_ms)


def attribute(value: object) -> dict[str, Any]:
    """A value in DynamoDB JSON."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": str(value)}
        case list():
            return {"L": [attribute(element) for element in value]}
        case dict():
            return {"M": {name: attribute(element) for name, element in value.items()}}
        case _:
            return {"S": str(value)}


def change(
    pk: str,
    *,
    seq: int = 1,
    op: str = "modify",
    shard: str | None = "a",
    at_ms: int | None = START_MS,
    **attributes: object,
) -> dict[str, object]:
    """One row of schema CHANGES for the item with key `pk`; no image when it is a remove."""
    keys = {"pk": {"S": pk}}
    image = keys | {name: attribute(value) for name, value in attributes.items()}
    return {
        "shard_id": shard,
        "sequence_number": sequence(seq),
        "op": op,
        "created_at": at_ms,
        "ttl_delete": False,
        "keys": json.dumps(keys),
        "image": None if op == "remove" else json.dumps(image),
        "old_image": None,
        "event_id": f"event-{shard}-{seq}",
    }


def changes(*rows: dict[str, object]) -> pa.Table:
    """A table of schema CHANGES."""
    return changes_of(rows)


def changes_of(rows: Iterable[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=CHANGES)
