"""Where a copy is written and how it becomes the published one.

Owns the two kinds of place. Until a copy is whole it has another name; a reader meets the old file
or the new one, whole, whenever it looks, and keeps the old one for as long as it has it open. Must
not know what is in a copy, nor when one is due.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from connector.aws.copies import CopyBucket
from connector.errors import CopyFailed

UNFINISHED: Final = ".publishing"
# Only the owner may read what is not whole yet.
_WHILE_WRITTEN: Final = 0o600
_HINT: Final = "See that the directory exists, that this user may write there, and its free space."


class Place(Protocol):
    """One published copy. `staging` is where the next one is written."""

    staging: Path

    def prepare(self) -> None:
        """Makes `staging` free: what a process that was killed left there goes."""

    def put(self, is_stopped: Callable[[], bool]) -> None:
        """Makes what was written the published copy.

        Raises:
            CopyFailed: the published copy is as it was before
        """

    def clear(self) -> None:
        """Removes what is left in `staging`. Never raises."""


class FilePlace:
    """A file of this machine: written beside the old one and renamed over it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.staging = path.with_name(f".{path.name}{UNFINISHED}")

    def prepare(self) -> None:
        try:
            self.staging.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        _remove_staged(self.staging, self._path)

    def put(self, _is_stopped: Callable[[], bool]) -> None:
        try:
            mode = self._mode()
            with self.staging.open("rb") as file:
                os.fsync(file.fileno())
            self.staging.chmod(mode)
            self.staging.replace(self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def clear(self) -> None:
        _clear(self.staging)

    def _mode(self) -> int:
        """That of the file it replaces, which a person may have set; else what the umask says."""
        try:
            return stat.S_IMODE(self._path.stat().st_mode)
        except FileNotFoundError:
            return stat.S_IMODE(self.staging.stat().st_mode)


class ObjectPlace:
    """An object of a bucket: written to this disk first, then sent."""

    def __init__(self, bucket: CopyBucket, name: str, key: str, staging: Path) -> None:
        self._bucket = bucket
        self._name = name
        self._key = key
        self.staging = staging

    def prepare(self) -> None:
        try:
            self.staging.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _unwritable(self.staging, error) from error
        _remove_staged(self.staging, self.staging)

    def put(self, is_stopped: Callable[[], bool]) -> None:
        try:
            self.staging.chmod(_WHILE_WRITTEN)
            self._bucket.put(self.staging, self._name, self._key, is_stopped=is_stopped)
        except OSError as error:
            raise _unwritable(self.staging, error) from error

    def clear(self) -> None:
        _clear(self.staging)


def _staged(staging: Path) -> tuple[Path, Path]:
    """The file and DuckDB's log of it: a log left behind would be replayed into the next file."""
    return staging, staging.with_name(staging.name + ".wal")


def _remove_staged(staging: Path, target: Path) -> None:
    try:
        for path in _staged(staging):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(target, error) from error


def _clear(staging: Path) -> None:
    for path in _staged(staging):
        try:
            path.unlink(missing_ok=True)
        except OSError:
            # The next copy tries again, and says so when it cannot.
            continue


def clear_spill(spill: Path) -> None:
    """What DuckDB could not hold in memory while it wrote; never raises."""
    shutil.rmtree(spill, ignore_errors=True)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> CopyFailed:
    return CopyFailed(f"The copy {path} cannot be written: {error.strerror or error}.", hint=_HINT)
