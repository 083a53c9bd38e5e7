"""A Batch as an object of the segment log, and back: Parquet with the header in its footer.

Owns the encoding of segments and bases. Must not know the log, or what applies a Batch.

Any Parquet reader shows a segment's changes. zstd level 1 with dictionaries for the two columns
that repeat made the smallest objects of what was tried (docs/decisions). Which scan rows win
is decided before a SNAPSHOT segment is written, so that its replay compares nothing: its Batch
carries a ticket that no commit is later than.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from accelerator.batch import CHANGES, Batch, empty_changes
from checkpoints.errors import LogCorrupt
from checkpoints.positions import SourceIdentity
from checkpoints.progress import DatasetProgress
from checkpoints.segment import SegmentHeader, SegmentKind

HEADER_KEY: Final = b"dynaduck.segment"

WITHOUT_ROWS: Final = (SegmentKind.FENCE, SegmentKind.EVENT)

SETTLED_TICKET: Final = 2**63 - 1
"""The scan ticket of rows that won already."""

BASE_PARTS: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        # Of the bytes as stored: a zstd frame.
        pa.field("sha256", pa.string(), nullable=False),
        # Of the piece of the data file, once unpacked.
        pa.field("nbytes", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class BasePart:
    """A piece of a data file, in the bucket under `key`."""

    key: str
    sha256: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class BaseParts:
    """A data file in order: all of every dataset, its types, dead letters and history with it."""

    parts: tuple[BasePart, ...]


class SegmentFile:
    """The codec: `checkpoints.segment.SegmentCodec` of a Batch or of a base. Stateless."""

    def encode(self, header: SegmentHeader, payload: Batch | BaseParts | None) -> bytes:
        """A whole Parquet object. Raises ValueError when payload and header differ in kind."""
        rows = _rows_for(header, payload)
        sink = BytesIO()
        # Without the Arrow schema in the footer a small segment is a quarter smaller; these types
        # come back the same without it.
        with pq.ParquetWriter(
            sink,
            rows.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[] if header.kind is SegmentKind.BASE else ["shard_id", "op"],
            store_schema=False,
            write_page_checksum=True,
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({HEADER_KEY: header.to_json()})
        return sink.getvalue()

    def header(self, data: bytes) -> SegmentHeader:
        """Raises LogCorrupt when the object is no segment."""
        try:
            footer = pq.read_metadata(BytesIO(data)).metadata or {}
        except (pa.ArrowException, OSError) as error:
            raise LogCorrupt(f"An object of the log is no Parquet file: {error}.") from error
        text = footer.get(HEADER_KEY)
        if text is None:
            raise LogCorrupt("An object of the log is a Parquet file without a segment's header.")
        return SegmentHeader.of_json(text)

    def batch(self, header: SegmentHeader, data: bytes) -> Batch | None:
        """The changes of a segment with the progress they bring; None for a fence or an event.

        Raises:
            LogCorrupt: the object is not whole, or of another schema.
        """
        if header.kind in WITHOUT_ROWS:
            return None
        changes = _read(data, CHANGES)
        if len(header.progress) != 1 or header.progress[0].dataset != header.dataset:
            raise LogCorrupt(f"The segment {header.index} does not say how far its dataset got.")
        progress = header.progress[0]
        return Batch(
            changes=changes,
            generation=progress.generation,
            shards=progress.shards,
            segments=progress.segments,
            gaps=progress.gaps,
            fills=progress.fills,
            scan_ticket=SETTLED_TICKET if header.kind is SegmentKind.SNAPSHOT else None,
            nbytes=changes.nbytes,
        )

    def base_parts(self, data: bytes) -> BaseParts:
        """Where the data file of a base lies. Raises LogCorrupt."""
        rows = _read(data, BASE_PARTS).to_pylist()
        return BaseParts(tuple(BasePart(row["key"], row["sha256"], row["nbytes"]) for row in rows))


def kind_of(batch: Batch) -> SegmentKind:
    """The kind of segment that a batch becomes."""
    return SegmentKind.SNAPSHOT if batch.is_scan else SegmentKind.CHANGES


def progress_of(dataset: str, batch: Batch, source: SourceIdentity | None) -> DatasetProgress:
    """What a batch changes of its dataset's progress; `source` where it is not in the log yet."""
    return DatasetProgress(
        dataset,
        batch.generation,
        source,
        batch.shards,
        batch.segments,
        batch.gaps,
        batch.fills,
    )


def _rows_for(header: SegmentHeader, payload: Batch | BaseParts | None) -> pa.Table:
    if header.kind in WITHOUT_ROWS:
        if payload is not None:
            raise ValueError(f"a segment of kind {header.kind} has no rows")
        return empty_changes()
    if header.kind is SegmentKind.BASE:
        if not isinstance(payload, BaseParts):
            raise ValueError("a base has parts")
        rows = [{"key": p.key, "sha256": p.sha256, "nbytes": p.nbytes} for p in payload.parts]
        return pa.Table.from_pylist(rows, schema=BASE_PARTS)
    if not isinstance(payload, Batch) or kind_of(payload) is not header.kind:
        raise ValueError(f"a segment of kind {header.kind} has a batch of that kind")
    return payload.changes.cast(CHANGES)


def _read(data: bytes, schema: pa.Schema) -> pa.Table:
    try:
        rows = pq.read_table(BytesIO(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise LogCorrupt(f"A segment cannot be read: {error}.") from error
    if not rows.schema.equals(schema):
        raise LogCorrupt(f"A segment has other columns: {rows.schema.names}.")
    return rows
