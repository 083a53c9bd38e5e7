"""How fast a page becomes Arrow: `python -m bench.wire [--records N]`.

Prints thousand records/s of one core, by the CPU time of this thread, so that a busy machine
disturbs it little. Best of many rounds; the last line is what a user would write.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from boto3.dynamodb.types import TypeDeserializer

from connector.aws.wire import cut_records, cut_scan

ROUNDS = 60


def image(number: int) -> dict[str, Any]:
    """Twelve attributes of all types, about 370 bytes."""
    return {
        "pk": {"S": f"user#{number}"},
        "sk": {"N": str(number)},
        "name": {"S": "Ann Example, of Nowhere"},
        "balance": {"N": "123.45"},
        "active": {"BOOL": True},
        "closed": {"NULL": True},
        "token": {"B": "AAECAwQFBgc="},
        "tags": {"SS": ["a", "b", "c"]},
        "steps": {"L": [{"S": "x"}, {"N": "1"}]},
        "address": {"M": {"street": {"S": "Lane"}, "number": {"N": "9"}}},
        "created": {"S": "2024-01-01T00:00:00Z"},
        "note": {"S": "x" * 60},
    }


def page(records: int) -> bytes:
    """A GetRecords body of about 1.1 KB a record, new and old image."""
    return _compact(
        {
            "NextShardIterator": "arn|iterator",
            "Records": [
                {
                    "awsRegion": "eu-west-1",
                    "dynamodb": {
                        "ApproximateCreationDateTime": 1_700_000_000,
                        "Keys": {name: image(number)[name] for name in ("pk", "sk")},
                        "NewImage": image(number),
                        "OldImage": image(number),
                        "SequenceNumber": str(10**20 + number),
                        "SizeBytes": 400,
                        "StreamViewType": "NEW_AND_OLD_IMAGES",
                    },
                    "eventID": f"{number:032x}",
                    "eventName": "MODIFY",
                    "eventSource": "aws:dynamodb",
                    "eventVersion": "1.1",
                }
                for number in range(records)
            ],
        }
    )


def scan_page(items: int) -> bytes:
    """A Scan body of about 370 bytes an item."""
    return _compact({"Count": items, "Items": [image(number) for number in range(items)]})


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _deserialized(body: bytes) -> list[dict[str, Any]]:
    deserialize = TypeDeserializer().deserialize
    found = []
    for record in json.loads(body)["Records"]:
        for name, value in record["dynamodb"]["NewImage"].items():
            if "B" in value:
                record["dynamodb"]["NewImage"][name] = {"B": value["B"].encode()}
        found.append(
            {name: deserialize(value) for name, value in record["dynamodb"]["NewImage"].items()}
        )
    return found


def best_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The least CPU seconds of this thread over the rounds."""
    taken = []
    for _ in range(rounds):
        began_s = time.thread_time()
        work()
        taken.append(time.thread_time() - began_s)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast a page becomes Arrow.")
    parser.add_argument("--records", type=int, default=1000, help="records in a page")
    count = parser.parse_args().records
    records, items = page(count), scan_page(count)
    print(f"GetRecords {len(records) / count:.0f} B/record, Scan {len(items) / count:.0f} B/item")
    for name, work, rounds in (
        ("cut GetRecords", lambda: cut_records(records, "shard", at_ms=0), ROUNDS),
        (
            "cut GetRecords, old images",
            lambda: cut_records(records, "shard", at_ms=0, old_images=True),
            ROUNDS,
        ),
        ("cut Scan", lambda: cut_scan(items, at_ms=0, consistent=True), ROUNDS),
        ("crc32 of the body alone", lambda: zlib.crc32(records), ROUNDS),
        ("msgspec to dicts, discarded", lambda: msgspec.json.decode(records), ROUNDS),
        ("json + TypeDeserializer", lambda: _deserialized(records), 3),
    ):
        seconds = best_s(work, rounds)
        print(f"{name:32}{count / seconds / 1000:10.1f} thousand/s {seconds * 1e6:10.0f} us a page")


if __name__ == "__main__":
    main()
