"""The stores of the checkpoint protocols, each in memory and over HTTP on the emulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from checkpoints.kv import ItemStore, MemoryItemStore
from checkpoints.object_store import MemoryObjectStore, ObjectStore
from connector.aws.stores import DynamoItemStore, S3ObjectStore, StoreSettings, store_client
from emulator import Emulator

BACKENDS = ("memory", "emulator")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def checkpoint_aws() -> Iterator[Emulator]:
    """One emulator for the stores of all tests; each test has a table or bucket of its own."""
    with Emulator(shards=1) as aws:
        yield aws


@pytest.fixture(params=BACKENDS)
def items(request: pytest.FixtureRequest) -> ItemStore:
    """An empty item store."""
    if request.param == "memory":
        return MemoryItemStore()
    aws: Emulator = request.getfixturevalue("checkpoint_aws")
    return new_table(aws)


@pytest.fixture(params=BACKENDS)
def objects(request: pytest.FixtureRequest) -> ObjectStore:
    """An empty object store."""
    if request.param == "memory":
        return MemoryObjectStore()
    aws: Emulator = request.getfixturevalue("checkpoint_aws")
    return new_bucket(aws)


@cache
def client_of(url: str, service: str) -> Any:
    """A client for the stores of an emulator: to make one takes longer than most tests."""
    settings = StoreSettings(
        "us-east-1",
        "AKIAEMULATOR00000000",
        "secret",
        dynamodb_endpoint_url=url,
        s3_endpoint_url=url,
    )
    return store_client(service, settings)


def new_table(aws: Emulator) -> DynamoItemStore:
    """A new offset table."""
    name = f"offsets-{next(_numbers)}"
    client_of(aws.url, "dynamodb").create_table(
        TableName=name,
        AttributeDefinitions=[
            {"AttributeName": "PK", "AttributeType": "S"},
            {"AttributeName": "SK", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    return DynamoItemStore(client_of(aws.url, "dynamodb"), name)


def new_bucket(aws: Emulator) -> S3ObjectStore:
    """A new segment bucket."""
    name = f"segments-{next(_numbers)}"
    client_of(aws.url, "s3").create_bucket(Bucket=name)
    return S3ObjectStore(client_of(aws.url, "s3"), name)
