"""`dynaduck segments`: the log in the bucket, as it lies there. Reads alone, and needs no lease."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from accelerator.segment import SegmentFile
from checkpoints.audit import Audit, LogAudit
from checkpoints.errors import LogCorrupt
from checkpoints.keys import PipelineKey
from checkpoints.object_store import ObjectStore
from checkpoints.segment import SegmentHeader, SegmentKind
from checkpoints.segment_log import LIST_PAGE
from connector.cli.app import ANY_SETTING, ConfigFile, Exit, app, configuration, exits
from connector.storage import log_objects, pipeline_of
from connector.surface.status import rfc3339

segments_app = typer.Typer(
    help="The log of changes in the bucket: list its segments, verify all of it.",
    no_args_is_help=True,
)
app.add_typer(segments_app, name="segments")

SHOWN: Final = 20
LEAST_WIDTH: Final = 110
SHOW_EVERY: Final = 100  # objects between two lines where no terminal is

_AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@segments_app.command("list", context_settings=ANY_SETTING)
@exits
def show(
    context: typer.Context,
    config: ConfigFile = None,
    last: Annotated[int, typer.Option(help="So many of the newest; 0: all.", min=0)] = SHOWN,
    as_json: _AsJson = False,
) -> Exit:
    """The segments with what they hold, and the bases. Reads each segment that it shows."""
    resolved = configuration(config, None, context.args, datasets_wanted=False)
    store, pipeline = log_objects(resolved), pipeline_of(resolved.runtime)
    indexes = _indexes(store, pipeline.segments_prefix, pipeline)
    bases = _bases(store, pipeline)
    shown = indexes[-last:] if last else indexes
    rows = [_row(store, pipeline, index) for index in shown]
    if as_json:
        document = {"segments": rows, "bases": bases, "of": len(indexes)}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return Exit.DONE
    if not indexes and not bases:
        sys.stdout.write(f"The pipeline {pipeline.pk} has no log in this bucket.\n")
        return Exit.DONE
    # Cut columns would hide what the list is for: a narrow terminal wraps its lines instead.
    _print(rows, Console(width=max(LEAST_WIDTH, Console().width)))
    sys.stdout.write(
        f"{len(rows):,} of {_count(len(indexes), 'segment')}"
        f"{f', {indexes[0]} to {indexes[-1]}' if indexes else ''}; "
        f"{_count(len(bases), 'base')}{f', the newest at {bases[-1]}' if bases else ''}\n"
    )
    return Exit.DONE


@segments_app.command(context_settings=ANY_SETTING)
@exits
def verify(context: typer.Context, config: ConfigFile = None, as_json: _AsJson = False) -> Exit:
    """Reads the whole log: chain, hashes, epochs, contents, bases. Exit status 5: it is broken."""
    resolved = configuration(config, None, context.args, datasets_wanted=False)
    store, pipeline = log_objects(resolved), pipeline_of(resolved.runtime)
    audit = LogAudit(
        store, pipeline, SegmentFile(), look=_look_with(store), on_read=_show_progress
    ).run()
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    if as_json:
        sys.stdout.write(json.dumps(_document(audit), indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _sentences(audit, pipeline)))
    return Exit.DONE if audit.is_whole else Exit.CHECKS_FAILED


def _look_with(store: ObjectStore) -> Any:
    file = SegmentFile()

    def look(header: SegmentHeader, data: bytes) -> None:
        if header.kind is not SegmentKind.BASE:
            file.batch(header, data)
            return
        for part in file.base_parts(data).parts:
            piece = store.get(part.key)
            if piece is None:
                raise LogCorrupt(f"Its piece {part.key} is gone.")
            if hashlib.sha256(piece).hexdigest() != part.sha256:
                raise LogCorrupt(f"Its piece {part.key} is another than it says.")

    return look


def _show_progress(done: int, objects: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done:,} of {objects:,} objects read \x1b[K")
    elif done % SHOW_EVERY == 0:
        sys.stderr.write(f"{done:,} of {objects:,} objects read\n")


def _sentences(audit: Audit, pipeline: PipelineKey) -> list[str]:
    if audit.first is None and not audit.bases:
        return [f"The pipeline {pipeline.pk} has no log in this bucket."]
    said = [f"{fault.key}: {fault.sentence}" for fault in audit.faults]
    whole = "holds" if audit.is_whole else f"is broken: {_count(len(audit.faults), 'fault')}"
    said.append(
        f"The log {whole}. {_count(audit.segments, 'segment')}"
        + (f" ({audit.first} to {audit.last}, epoch {audit.epoch})" if audit.first else "")
        + f", {_count(len(audit.bases), 'base')}, {audit.nbytes:,} bytes read."
    )
    if audit.restorable_from is None:
        said.append("No segment up to its end can be restored from it.")
    else:
        said.append(f"It can be restored to any segment from {audit.restorable_from} on.")
    return said


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _document(audit: Audit) -> dict[str, Any]:
    return {
        "whole": audit.is_whole,
        "segments": audit.segments,
        "first": audit.first,
        "last": audit.last,
        "epoch": audit.epoch,
        "bytes": audit.nbytes,
        "bases": audit.bases,
        "restorable_from": audit.restorable_from,
        "faults": [{"key": fault.key, "fault": fault.sentence} for fault in audit.faults],
    }


def _row(store: ObjectStore, pipeline: PipelineKey, index: int) -> dict[str, Any]:
    data = store.get(pipeline.segment_key(index))
    if data is None:
        return {"index": index, "fault": "It was listed, and is gone."}
    file = SegmentFile()
    try:
        header = file.header(data)
        batch = file.batch(header, data)
    except LogCorrupt as corrupt:
        return {"index": index, "bytes": len(data), "fault": corrupt.message}
    return {
        "index": index,
        "kind": header.kind.value,
        "epoch": header.epoch,
        "dataset": header.dataset,
        "changes": 0 if batch is None else batch.changes.num_rows,
        "bytes": len(data),
        "at": None if header.at_ms is None else rfc3339(header.at_ms),
        "newest_change": (
            None if header.newest_created_ms is None else rfc3339(header.newest_created_ms)
        ),
        "writer": header.writer,
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _print(rows: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, header_style="bold")
    for column, side in (
        ("index", "right"),
        ("kind", "left"),
        ("epoch", "right"),
        ("dataset", "left"),
        ("changes", "right"),
        ("bytes", "right"),
        ("appended", "left"),
        ("newest change", "left"),
    ):
        table.add_column(column, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        if "fault" in row:
            table.add_row(str(row["index"]), str(row["fault"]))
            continue
        table.add_row(
            str(row["index"]),
            row["kind"],
            str(row["epoch"]),
            row["dataset"] or "",
            f"{row['changes']:,}",
            f"{row['bytes']:,}",
            row["at"] or "",
            row["newest_change"] or "",
        )
    console.print(table)


def _indexes(store: ObjectStore, prefix: str, pipeline: PipelineKey) -> list[int]:
    return [i for key in _keys(store, prefix) if (i := pipeline.segment_index(key)) is not None]


def _bases(store: ObjectStore, pipeline: PipelineKey) -> list[int]:
    keys = _keys(store, pipeline.bases_prefix)
    return [i for key in keys if (i := pipeline.base_index(key)) is not None]


def _keys(store: ObjectStore, prefix: str) -> list[str]:
    keys: list[str] = []
    while True:
        page = store.list_after(prefix, keys[-1] if keys else None, LIST_PAGE)
        keys += page
        if len(page) < LIST_PAGE:
            return keys
