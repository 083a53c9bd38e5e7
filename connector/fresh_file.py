"""The data file that a refused start made, and takes away again.

Owns the one case in which a data file may be removed: it was not there before, and the start was
refused before anything was copied. Nobody is to find an empty file that names no table.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class FreshFile:
    """Make it before the file is opened; a file that was there then is never touched."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was_there = path.exists()
        self._directory_was_there = path.parent.exists()

    def remove(self) -> None:
        """After the file is closed. What cannot be removed stays, since the refusal is the news."""
        if self._was_there:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._path.with_name(self._path.name + ".wal").unlink(missing_ok=True)
            if not self._directory_was_there:
                self._path.parent.rmdir()
