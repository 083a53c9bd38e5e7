"""Makes and fills the table `orders`, with its stream, in the emulator of docker-compose.yml."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import boto3

TABLE = "orders"
ITEMS = 1_000
BATCH = 25  # BatchWriteItem takes no more


def seed(endpoint_url: str) -> int:
    """Makes the table where it is missing, writes the items, returns their number."""
    client = boto3.client(
        "dynamodb",
        endpoint_url=endpoint_url,
        region_name=os.environ.get("AWS_REGION", "us-east-1"),
    )
    # A second `docker compose up` finds the table.
    with contextlib.suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "order_id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "order_id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
    for first in range(0, ITEMS, BATCH):
        puts = [{"PutRequest": {"Item": order(n)}} for n in range(first, first + BATCH)]
        client.batch_write_item(RequestItems={TABLE: puts})
    return ITEMS


def order(number: int) -> dict[str, Any]:
    """The item of that number, in DynamoDB JSON."""
    return {
        "order_id": {"S": f"order-{number:05d}"},
        "customer": {"S": f"customer-{number % 97:02d}"},
        "total": {"N": f"{(number * 7919) % 50_000 / 100:.2f}"},
        "items": {"L": [{"S": f"sku-{number % 13}"}]},
        "is_paid": {"BOOL": number % 3 != 0},
    }


if __name__ == "__main__":
    print(f"{seed(os.environ['ENDPOINT_URL'])} items in {TABLE}")
