"""Answers as compact JSON, with times and binary as DynamoDB writes them.

Must not know which operation answers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from emulator.clock import epoch_number
from emulator.streams import EpochTime


def encode(answer: Any) -> bytes:
    """Any answer as bytes; binary values become base64 text."""
    return msgspec.json.encode(_plain(answer))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, EpochTime):
        return msgspec.Raw(value.encoded())
    if isinstance(value, datetime):
        return msgspec.Raw(epoch_number(value.replace(tzinfo=UTC).timestamp()))
    return value
