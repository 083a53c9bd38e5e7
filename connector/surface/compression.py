"""Answers packed on their way, as far as the client asks for it.

Owns the choice of coding and the two codecs; a codec holds no more than its window.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import pyarrow as pa


class Codec(Protocol):
    @property
    def name(self) -> str: ...

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _Gzip:
    name = "gzip"

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(5, zlib.DEFLATED, 31)

    def feed(self, data: bytes) -> bytes:
        return self._deflate.compress(data)

    def finish(self) -> bytes:
        return self._deflate.flush()


class _Zstd:
    name = "zstd"

    def __init__(self) -> None:
        self._sink = _Taken()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._sink, "w"), "zstd")

    def feed(self, data: bytes) -> bytes:
        self._stream.write(data)
        return self._sink.take()

    def finish(self) -> bytes:
        self._stream.close()
        return self._sink.take()


class _Taken:
    """A file that is emptied by reading it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def codec_for(accept_encoding: str) -> Codec | None:
    accepted = {}
    for part in accept_encoding.split(","):
        name, *options = (piece.strip().lower() for piece in part.split(";"))
        accepted[name] = not any(o in ("q=0", "q=0.0", "q=0.00", "q=0.000") for o in options)
    if accepted.get("zstd"):
        return _Zstd()
    if accepted.get("gzip"):
        return _Gzip()
    return None
