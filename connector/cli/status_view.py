"""`dynaduck status`: the /v1/status document for a person.

Owns the drawing. It takes the document as it came over the wire, so the command also shows what a
service of another version says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

_STYLES = {
    "Ready": "green",
    "Lagging": "yellow",
    "CatchingUp": "yellow",
    "Snapshotting": "cyan",
    "Initializing": "cyan",
    "Error": "bold red",
    "ShuttingDown": "dim",
}

Document = Mapping[str, Any]


def print_status(document: Document, console: Console) -> None:
    """Datasets, why they are not Ready, their snapshots, and each stream's shards as a tree."""
    console.print(_overview(document))
    for line in _configuration(document.get("configuration") or {}):
        console.print(line)
    for dataset in document.get("datasets", ()):
        console.print(_dataset(dataset))


def _overview(document: Document) -> Table:
    table = Table(title=f"dynaduck {document.get('version', '')}", title_justify="left")
    for column, side in (
        ("dataset", "left"),
        ("state", "left"),
        ("rows", "right"),
        ("lag", "right"),
        ("as of", "left"),
        ("shards", "right"),
        ("headroom", "right"),
    ):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for dataset in document.get("datasets", ()):
        state = str(dataset.get("state", "?"))
        label = f"{state} (paused)" if dataset.get("is_paused") else state
        table.add_row(
            Text(str(dataset.get("name", ""))),
            Text(label, style=_STYLES.get(state, "")),
            _count(dataset.get("rows")),
            _milliseconds(dataset.get("lag_max_ms")),
            _moment(dataset.get("as_of")),
            _count(dataset.get("shards_active")),
            _seconds(dataset.get("retention_headroom_s")),
        )
    return table


def _configuration(configuration: Document) -> list[Text]:
    """What the last reload refused, and what waits for a restart; nothing when all of it holds."""
    lines = []
    if error := configuration.get("error"):
        file = configuration.get("file") or "the configuration"
        lines.append(Text(f"{file} is refused, what was read before holds: {error}", "bold red"))
    if waiting := configuration.get("needs_restart"):
        lines.append(Text(f"changed, and waits for a restart: {', '.join(waiting)}", "yellow"))
    return lines


def _dataset(dataset: Document) -> RenderableType:
    parts: list[RenderableType] = [_reason(reason) for reason in dataset.get("reasons", ())]
    if snapshot := dataset.get("snapshot"):
        parts.append(Text(_snapshot(snapshot)))
    parts += [
        Text(f"gap in {gap.get('shard_id')}: {gap.get('cause')}", style="bold red")
        for gap in dataset.get("gaps", ())
        if gap.get("resolution") is None
    ]
    if dataset.get("dead_letters"):
        parts.append(Text(f"{dataset['dead_letters']} dead letters", style="yellow"))
    if cost := dataset.get("cost"):
        parts.append(Text(_cost(cost), style="dim"))
    if shards := dataset.get("shards"):
        parts.append(shard_tree(str(dataset.get("name", "")), shards))
    return Group(*parts)


def _reason(reason: Document) -> Text:
    text = Text.assemble(
        (f"{reason.get('code')}: ", "bold" if reason.get("blocks", True) else "dim"),
        str(reason.get("message", "")),
    )
    if reason.get("remedy"):
        text.append(f"\n    {reason['remedy']}", style="italic")
    return text


def _cost(cost: Document) -> str:
    """A table that idles costs fractions of a cent a day, which are worth seeing too."""
    said = [f"about ${dollars(cost['usd_per_day'])} a day"]
    said.append(f"{cost['get_records_per_day']:,.0f} GetRecords")
    if cost.get("read_units"):
        said.append(f"{cost['read_units']:,.0f} read units in the last day")
    return " · ".join(said) + f" (list prices of {cost.get('prices_of')})"


def dollars(amount: float) -> str:
    """Two digits that tell something: 12.30, 0.035."""
    return f"{amount:,.2f}" if amount >= 0.1 or amount == 0 else f"{amount:.2g}"


def _snapshot(snapshot: Document) -> str:
    said = [f"snapshot {snapshot.get('state', '')}"]
    if snapshot.get("ratio") is not None:
        said.append(f"{int(snapshot['ratio'] * 100)} %")
    done, total = snapshot.get("segments_done"), snapshot.get("segments_total")
    if total:
        said.append(f"{done} of {total} segments")
    said.append(f"{snapshot.get('items', 0):,} items")
    if snapshot.get("eta_s") is not None:
        said.append(f"{_seconds(snapshot['eta_s'])} left")
    return " · ".join(said)


def shard_tree(name: str, shards: Sequence[Document]) -> Tree:
    """The lineage: each shard under its parent; one whose parent is not known stands on top."""
    tree = Tree(Text(f"shards of {name}"), guide_style="dim")
    known = {shard["shard_id"]: shard for shard in shards}
    children: dict[str | None, list[Document]] = {}
    for shard in shards:
        parent = shard.get("parent_shard_id")
        children.setdefault(parent if parent in known else None, []).append(shard)
    # Lineages can be hundreds deep, so no recursion.
    pending = [(tree, shard) for shard in reversed(children.get(None, []))]
    while pending:
        branch, shard = pending.pop()
        node = branch.add(_shard(shard))
        below = children.get(shard["shard_id"], [])
        pending += [(node, child) for child in reversed(below)]
    return tree


def _shard(shard: Document) -> Text:
    state = str(shard.get("state", "?"))
    style = {"finished": "dim", "gap": "bold red", "backoff": "yellow", "verify": "yellow"}
    text = Text.assemble(
        (str(shard.get("shard_id", "")), "dim" if state == "finished" else ""),
        "  ",
        (state, style.get(state, "green")),
        f"  {shard.get('records', 0):,} records",
    )
    if shard.get("lag_ms") is not None and state != "finished":
        text.append(f"  lag {_milliseconds(shard['lag_ms'])}")
    if shard.get("error"):
        text.append(f"  {shard['error']}", style="red")
    return text


def _count(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _moment(text: Any) -> str:
    """Without the fraction, which no terminal has room for."""
    return "-" if not text else f"{str(text)[:19].replace('T', ' ')}Z"


def _milliseconds(value: Any) -> str:
    return "-" if value is None else _seconds(value / 1000)


def _seconds(value: Any) -> str:
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.1f} s"
    if value < 600:
        return f"{value:.0f} s"
    if value < 36_000:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"
