"""Bodies as the wire carries them: builders for answers of GetRecords and Scan."""

from __future__ import annotations

import json
from typing import Any

Image = dict[str, Any]


def compact(value: object) -> bytes:
    """JSON as AWS writes it: UTF-8, no whitespace."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def text_of(value: object) -> str:
    return compact(value).decode()


def record(
    name: str = "INSERT",
    *,
    number: int | str = 10**20,
    keys: Image | None = None,
    new: Image | None = None,
    old: Image | None = None,
    created: float | None = 1_700_000_000,
    identity: dict[str, str] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """One record; without `new` and `old` the images are left out, as a REMOVE or a view does."""
    change: dict[str, Any] = {
        "Keys": keys or {"pk": {"S": "a"}},
        "SequenceNumber": str(number),
        "SizeBytes": 10,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    if created is not None:
        change["ApproximateCreationDateTime"] = created
    if new is not None:
        change["NewImage"] = new
    if old is not None:
        change["OldImage"] = old
    made: dict[str, Any] = {
        "awsRegion": "eu-west-1",
        "dynamodb": change,
        "eventID": f"id-{number}",
        "eventName": name,
        "eventSource": "aws:dynamodb",
        "eventVersion": "1.1",
        **others,
    }
    if identity is not None:
        made["userIdentity"] = identity
    return made


def records_body(*records: dict[str, Any], following: str | None = "next") -> bytes:
    page: dict[str, Any] = {"Records": list(records)}
    if following is not None:
        page["NextShardIterator"] = following
    return compact(page)


def scan_body(*items: Image, last: Image | None = None, **others: Any) -> bytes:
    page: dict[str, Any] = {"Count": len(items), "Items": list(items), "ScannedCount": len(items)}
    if last is not None:
        page["LastEvaluatedKey"] = last
    return compact({**page, **others})
