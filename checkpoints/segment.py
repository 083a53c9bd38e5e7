"""A segment's header: its place in the chain, and the progress that holds once it is applied.

Owns the header's fields, its JSON, and the codec protocol by which the log reads a header out of
an object. Must not know how the changes themselves are encoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from checkpoints.errors import LogCorrupt
from checkpoints.progress import DatasetProgress, progress_of_json, progress_to_json

P_contra = TypeVar("P_contra", contravariant=True)

FORMAT: Final = 1
GENESIS_SHA256: Final = "0" * 64
"""What stands for the hash before the first segment."""


class SegmentKind(StrEnum):
    """CHANGES of streams; SNAPSHOT rows that won against all changes before them; EVENT, which
    begins, ends or swaps a load, without rows; FENCE of a new leader, without rows; BASE, the whole
    dataset, which is no link of the chain.
    """

    CHANGES = "changes"
    SNAPSHOT = "snapshot"
    EVENT = "event"
    FENCE = "fence"
    BASE = "base"


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the footer says of a segment.

    pipeline           partition key of the pipeline
    writer             nonce of the process that wrote it
    prev_sha256        of the whole object before it; for a base, of the segment it includes last
    dataset            of its rows; None where it has none, or rows of several
    progress           what it changed
    whole              the progress of all datasets after it; None where it is not repeated
    newest_created_ms  AWS time of its youngest change; of a base, of the youngest that it holds
    at_ms              time at which its writer appended it, AWS's where that was known: stamps rows
                       alike on every node, and decides nothing
    event              of an EVENT, as JSON text that is opaque here
    """

    pipeline: str
    index: int
    epoch: int
    writer: str
    prev_sha256: str
    kind: SegmentKind
    dataset: str | None = None
    progress: tuple[DatasetProgress, ...] = ()
    whole: tuple[DatasetProgress, ...] | None = None
    newest_created_ms: int | None = None
    at_ms: int | None = None
    event: str | None = None

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "pipeline": self.pipeline,
                "index": self.index,
                "epoch": self.epoch,
                "writer": self.writer,
                "prev_sha256": self.prev_sha256,
                "kind": self.kind.value,
                "dataset": self.dataset,
                "progress": _to_json(self.progress),
                "whole": None if self.whole is None else _to_json(self.whole),
                "newest_created_ms": self.newest_created_ms,
                "at_ms": self.at_ms,
                "event": self.event,
            },
            ensure_ascii=False,
        )

    @classmethod
    def of_json(cls, text: str | bytes) -> SegmentHeader:
        """Raises LogCorrupt on anything that `to_json` of this format never gave."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise LogCorrupt(
                    f"The segment has format {document['format']}; this program reads {FORMAT}.",
                    hint="Run the version of dynaduck that wrote it, or a newer one.",
                )
            return cls(
                document["pipeline"],
                int(document["index"]),
                int(document["epoch"]),
                document["writer"],
                document["prev_sha256"],
                SegmentKind(document["kind"]),
                document["dataset"],
                _of_json(document["progress"]),
                None if document["whole"] is None else _of_json(document["whole"]),
                document["newest_created_ms"],
                document["at_ms"],
                document["event"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LogCorrupt(f"The header of a segment cannot be read: {error!r}.") from error


def _to_json(progress: Iterable[DatasetProgress]) -> list[dict[str, Any]]:
    return [progress_to_json(one) for one in progress]


def _of_json(documents: Iterable[Mapping[str, Any]]) -> tuple[DatasetProgress, ...]:
    return tuple(progress_of_json(document) for document in documents)


class SegmentCodec(Protocol[P_contra]):
    """How a header and a payload become one object, and the header is read back."""

    def encode(self, header: SegmentHeader, payload: P_contra | None) -> bytes:
        """The whole object. A fence has no payload."""

    def header(self, data: bytes) -> SegmentHeader:
        """Raises LogCorrupt when the object is no segment."""
