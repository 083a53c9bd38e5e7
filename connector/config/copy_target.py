"""Where the published copies of a dataset go: one file, or one object of a bucket.

Owns what `publish.to` means. A name that ends like a file of the format is that file; anything else
is a directory, or a prefix, in which the file is called after the dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from connector.config.settings import Dataset, Publish, PublishFormat
from connector.errors import ConfigError

_S3: Final = "s3://"
ENDINGS: Final = {
    PublishFormat.PARQUET: (".parquet",),
    PublishFormat.DUCKDB: (".duckdb", ".db"),
}
# The system tables of a copy are in a schema of this name, and a file's name is its catalog's.
_TAKEN_STEM: Final = "dynaduck"


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """`bucket` None: `name` is a path on this machine; else it is a key."""

    bucket: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.bucket is None else f"{_S3}{self.bucket}/{self.name}"

    @classmethod
    def of(cls, publish: Publish, dataset: str) -> CopyTarget:
        """Raises ValueError, with the sentence, where `publish.to` names no such place."""
        to = publish.to or ""
        bucket: str | None = None
        place = to
        if to.startswith(_S3):
            bucket, _, place = to.removeprefix(_S3).partition("/")
            if not bucket:
                raise ValueError(f"{to!r} names no bucket")
        elif "://" in to:
            raise ValueError(f"{to!r} is neither a path nor an s3:// address")
        name = _file_in(place, publish.format, dataset, is_key=bucket is not None)
        is_database = publish.format is PublishFormat.DUCKDB
        if is_database and Path(name).stem.lower() == _TAKEN_STEM:
            raise ValueError(
                f"a DuckDB file called {Path(name).name} would hide its own schema {_TAKEN_STEM}"
            )
        return cls(bucket, name)


def _file_in(place: str, format_: PublishFormat, dataset: str, *, is_key: bool) -> str:
    ending = Path(place).suffix.lower()
    if not place.endswith("/") and ending in ENDINGS[format_]:
        return place
    others = [each for endings in ENDINGS.values() for each in endings]
    if not place.endswith("/") and ending in others:
        raise ValueError(f"{place!r} does not end like a file of the format {format_.value}")
    file = quote(dataset, safe=" ") + ENDINGS[format_][0]
    if is_key:
        prefix = place.strip("/")
        return f"{prefix}/{file}" if prefix else file
    return str(Path(place) / file)


def target_problems(datasets: Sequence[Dataset], data_file: Path) -> list[ConfigError]:
    """What is wrong with the places of all datasets together: no two may share one."""
    problems: list[ConfigError] = []
    taken: dict[str, str] = {}
    for dataset in datasets:
        if dataset.publish.every_s is None or dataset.publish.to is None:
            continue
        setting = f"datasets.{dataset.name}.publish.to"
        try:
            target = CopyTarget.of(dataset.publish, dataset.name)
        except ValueError as error:
            problems.append(
                ConfigError(
                    f"{setting}: {error}.",
                    hint="Give a directory, a file that ends like the format, or s3://bucket/prefix.",
                )
            )
            continue
        place = str(target) if target.bucket else str(Path(target.name).absolute())
        if place in taken:
            problems.append(
                ConfigError(
                    f"{setting} is the file of {taken[place]} too: {place}.",
                    hint="Give each dataset a file of its own, or both one directory.",
                )
            )
        if target.bucket is None and Path(place).resolve() == data_file.absolute().resolve():
            problems.append(
                ConfigError(
                    f"{setting} is the data file of the service: {place}.",
                    hint="Publish to another file.",
                )
            )
        taken[place] = dataset.name
    return problems
