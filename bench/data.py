"""The data of the benchmarks: a table of numbered items, and changes to them, as AWS writes them.

Owns the bytes. An item has twelve attributes of all types, about 370 bytes; a change carries both
images, about 1.1 KB. Everything follows from a seed. Must not know who serves or reads it.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

KEY_SCHEMA: Final = (("pk", "HASH", "S"), ("sk", "RANGE", "N"))
FIRST_SEQUENCE_NUMBER: Final = 10**20
ITEMS_A_PAGE: Final = 2_500  # about the 1 MB that ends a page of Scan

_NUMBER: Final = 9_900_000_001  # stands for the item's number in templates
_DIGIT: Final = 9_900_000_002
_CENTS: Final = 9_900_000_003
_SEQUENCE: Final = 9_900_000_004


def item(number: int, digit: int, cents: int) -> dict[str, Any]:
    """An item in DynamoDB JSON; `cents` is what changes."""
    return {
        "pk": {"S": f"user#{number}"},
        "sk": {"N": str(digit)},
        "name": {"S": "Ann Example, of Nowhere"},
        "balance": {"N": f"{cents}.45"},
        "active": {"BOOL": True},
        "closed": {"NULL": True},
        "token": {"B": "AAECAwQFBgc="},
        "tags": {"SS": ["a", "b", "c"]},
        "steps": {"L": [{"S": "x"}, {"N": "1"}]},
        "address": {"M": {"street": {"S": "Lane"}, "number": {"N": "9"}}},
        "created": {"S": "2024-01-01T00:00:00Z"},
        "note": {"S": "x" * 60},
    }


def record(at_s: int) -> dict[str, Any]:
    image = item(_NUMBER, _DIGIT, _CENTS)
    return {
        "awsRegion": "eu-west-1",
        "dynamodb": {
            "ApproximateCreationDateTime": at_s,
            "Keys": {name: image[name] for name in ("pk", "sk")},
            "NewImage": image,
            "OldImage": image,
            "SequenceNumber": str(_SEQUENCE),
            "SizeBytes": 400,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventID": f"{7:022x}{_SEQUENCE}",
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "eventVersion": "1.1",
    }


class Template:
    """A JSON document with numbers to fill in, quickly."""

    def __init__(self, document: object) -> None:
        text = json.dumps(document, separators=(",", ":"))
        assert "%" not in text
        places = {_NUMBER: "%(n)08d", _DIGIT: "%(d)d", _CENTS: "%(c)d", _SEQUENCE: "%(s)d"}
        for number, place in places.items():
            text = text.replace(str(number), place)
        self._text = text.encode()

    def filled(self, *, n: int, c: int, s: int = 0) -> bytes:
        return self._text % {b"n": n, b"d": n % 10, b"c": c, b"s": s}


_ITEM: Final = Template(item(_NUMBER, _DIGIT, _CENTS))


def stream_page(
    *,
    rows: int,
    shard: int,
    shards: int,
    page: int,
    records: int,
    seed: int,
    at_s: int,
    from_item: int | None = None,
) -> bytes:
    """The `Records` array of one page: changes of random items that belong to the shard, or of its
    items in order, from its `from_item`-th on.
    """
    drawn = random.Random(f"{seed}/{shard}/{page}")
    template = Template(record(at_s))
    of_shard = max(1, rows // shards)
    first = FIRST_SEQUENCE_NUMBER + page * records
    return b",".join(
        template.filled(
            n=_chosen(drawn, of_shard, from_item, at) * shards + shard,
            c=drawn.randrange(100, 1000),
            s=first + at,
        )
        for at in range(records)
    )


def _chosen(drawn: random.Random, of_shard: int, from_item: int | None, at: int) -> int:
    return drawn.randrange(of_shard) if from_item is None else (from_item + at) % of_shard


def scan_items(first: int, end: int) -> bytes:
    """The `Items` array of the items `first` up to `end`."""
    return b",".join(_ITEM.filled(n=number, c=100) for number in range(first, end))


def key(number: int) -> dict[str, Any]:
    return {"pk": {"S": f"user#{number:08d}"}, "sk": {"N": str(number % 10)}}


def number_of(of_key: dict[str, Any]) -> int:
    return int(of_key["pk"]["S"].removeprefix("user#"))
