"""What each write does to the table and leaves in the stream, seen through boto3."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from emulator import Emulator, ManualClock
from tests.conformance.emulated import a_table, all_records, changes, raw, stream_arn

A = {"pk": {"S": "a"}}
B = {"pk": {"S": "b"}}


@pytest.fixture
def aws() -> Iterator[Emulator]:
    """A fresh emulator on a clock that stands still."""
    with Emulator(clock=ManualClock()) as emulator:
        yield emulator


def refused(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_put_update_and_delete_leave_one_record_each(aws: Emulator) -> None:
    """INSERT, MODIFY, REMOVE, with the images that belong to each."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    one, two = A | {"v": {"N": "1"}}, A | {"v": {"N": "2"}}
    dynamodb.put_item(TableName="orders", Item=one)
    dynamodb.update_item(
        TableName="orders",
        Key=A,
        UpdateExpression="SET v = v + :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    dynamodb.put_item(TableName="orders", Item=one)
    dynamodb.delete_item(TableName="orders", Key=A)
    assert changes(aws) == [
        ("INSERT", one, None),
        ("MODIFY", two, one),
        ("MODIFY", one, two),
        ("REMOVE", None, one),
    ]


def test_a_write_that_changes_nothing_leaves_no_record(aws: Emulator) -> None:
    """Equal puts, equal updates, sets in another order, 1 for 1.0, deletes of what is not there."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="orders", Item=A | {"n": {"N": "1"}, "s": {"SS": ["x", "y"]}})
    dynamodb.put_item(TableName="orders", Item=A | {"s": {"SS": ["y", "x"]}, "n": {"N": "1.0"}})
    dynamodb.update_item(
        TableName="orders",
        Key=A,
        UpdateExpression="SET n = :n",
        ExpressionAttributeValues={":n": {"N": "1E0"}},
    )
    dynamodb.update_item(TableName="orders", Key=A)
    dynamodb.delete_item(TableName="orders", Key=B)
    dynamodb.batch_write_item(RequestItems={"orders": [{"DeleteRequest": {"Key": B}}]})
    dynamodb.transact_write_items(
        TransactItems=[
            {"Delete": {"TableName": "orders", "Key": B}},
            {
                "Put": {
                    "TableName": "orders",
                    "Item": A | {"n": {"N": "1"}, "s": {"SS": ["x", "y"]}},
                }
            },
        ]
    )
    assert [name for name, _, _ in changes(aws)] == ["INSERT"]


def test_an_update_of_a_new_item_is_one_insert(aws: Emulator) -> None:
    """An upsert leaves one INSERT with the whole item, not one with the key first."""
    a_table(aws)
    aws.client("dynamodb").update_item(
        TableName="orders",
        Key=A,
        UpdateExpression="SET v = :v",
        ExpressionAttributeValues={":v": {"S": "x"}},
    )
    aws.client("dynamodb").update_item(TableName="orders", Key=B)
    assert sorted(changes(aws), key=str) == sorted(
        [("INSERT", A | {"v": {"S": "x"}}, None), ("INSERT", B, None)], key=str
    )


def test_a_write_that_fails_leaves_nothing(aws: Emulator) -> None:
    """A failed condition or a failed expression changes no item and emits no record."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    item = A | {"v": {"N": "1"}, "t": {"S": "text"}}
    dynamodb.put_item(TableName="orders", Item=item)
    never = {"ConditionExpression": "v = :no", "ExpressionAttributeValues": {":no": {"N": "9"}}}
    attempts: list[tuple[str, dict[str, Any], str]] = [
        ("put_item", {"Item": A | {"v": {"N": "2"}}} | never, "ConditionalCheckFailedException"),
        ("delete_item", {"Key": A} | never, "ConditionalCheckFailedException"),
        (
            "update_item",
            {
                "Key": A,
                "UpdateExpression": "SET v = :two",
                "ConditionExpression": "v = :no",
                "ExpressionAttributeValues": {":no": {"N": "9"}, ":two": {"N": "2"}},
            },
            "ConditionalCheckFailedException",
        ),
        (
            "update_item",
            {
                "Key": A,
                "UpdateExpression": "SET v = :two ADD t :two",
                "ExpressionAttributeValues": {":two": {"N": "2"}},
            },
            "ValidationException",
        ),
        (
            "update_item",
            {
                "Key": B,
                "UpdateExpression": "SET v = nothing + :two",
                "ExpressionAttributeValues": {":two": {"N": "2"}},
            },
            "ValidationException",
        ),
        (
            "update_item",
            {
                "Key": A,
                "UpdateExpression": "SET v = :two + :big",
                "ExpressionAttributeValues": {":two": {"N": "0.5"}, ":big": {"N": "9" * 38}},
            },
            "ValidationException",
        ),
    ]
    for method, params, code in attempts:
        with pytest.raises(ClientError) as caught:
            getattr(dynamodb, method)(TableName="orders", **params)
        assert refused(caught) == code
    assert dynamodb.scan(TableName="orders")["Items"] == [item]
    assert [name for name, _, _ in changes(aws)] == ["INSERT"]


def test_the_old_item_comes_with_a_failed_condition_when_asked_for(aws: Emulator) -> None:
    """ReturnValuesOnConditionCheckFailure gives the item that stood in the way."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    item = A | {"b": {"B": b"\x00\xff"}}
    dynamodb.put_item(TableName="orders", Item=item)
    with pytest.raises(ClientError) as caught:
        dynamodb.put_item(
            TableName="orders",
            Item=A,
            ConditionExpression="attribute_not_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert caught.value.response["Item"] == item


def test_a_batch_writes_each_item_and_refuses_duplicates_whole(aws: Emulator) -> None:
    """Each put and delete of a batch has its record; a refused batch has none."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="orders", Item=A)
    dynamodb.batch_write_item(
        RequestItems={
            "orders": [
                {"DeleteRequest": {"Key": A}},
                {"PutRequest": {"Item": B}},
                {"PutRequest": {"Item": {"pk": {"S": "c"}}}},
            ]
        }
    )
    before = len(all_records(aws))
    assert before == 4
    for second in ({"PutRequest": {"Item": B}}, {"DeleteRequest": {"Key": B}}):
        with pytest.raises(ClientError) as caught:
            dynamodb.batch_write_item(
                RequestItems={"orders": [{"PutRequest": {"Item": B | {"v": {"N": "1"}}}}, second]}
            )
        assert refused(caught) == "ValidationException"
    too_many = [{"PutRequest": {"Item": {"pk": {"S": str(n)}}}} for n in range(26)]
    with pytest.raises(ClientError) as caught:
        dynamodb.batch_write_item(RequestItems={"orders": too_many})
    assert refused(caught) == "ValidationException"
    assert len(all_records(aws)) == before


def test_a_transaction_is_all_or_nothing(aws: Emulator) -> None:
    """All writes and records, or none of either and the reasons in order."""
    a_table(aws)
    a_table(aws, "stock")
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="stock", Item=A | {"left": {"N": "1"}})

    def buy(order: str) -> None:
        dynamodb.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": "orders", "Item": {"pk": {"S": order}}}},
                {
                    "Update": {
                        "TableName": "stock",
                        "Key": A,
                        "UpdateExpression": "SET #left = #left - :one",
                        "ConditionExpression": "#left >= :one",
                        "ExpressionAttributeNames": {"#left": "left"},
                        "ExpressionAttributeValues": {":one": {"N": "1"}},
                    }
                },
                {
                    "ConditionCheck": {
                        "TableName": "stock",
                        "Key": B,
                        "ConditionExpression": "attribute_not_exists(pk)",
                    }
                },
            ]
        )

    buy("first")
    with pytest.raises(ClientError) as caught:
        buy("second")
    assert refused(caught) == "TransactionCanceledException"
    reasons = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert reasons == ["None", "ConditionalCheckFailed", "None"]
    assert changes(aws) == [("INSERT", {"pk": {"S": "first"}}, None)]
    assert changes(aws, "stock")[-1] == (
        "MODIFY",
        A | {"left": {"N": "0"}},
        A | {"left": {"N": "1"}},
    )
    with pytest.raises(ClientError) as caught:
        dynamodb.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": "orders", "Item": B}},
                {"Delete": {"TableName": "orders", "Key": B}},
            ]
        )
    assert "multiple operations on one item" in str(caught.value)


def test_a_transaction_sent_twice_with_one_token_is_applied_once(aws: Emulator) -> None:
    """The retry of a transaction whose answer was lost changes nothing, for ten minutes."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")

    def add(token: str, amount: str = "1") -> None:
        dynamodb.transact_write_items(
            ClientRequestToken=token,
            TransactItems=[
                {
                    "Update": {
                        "TableName": "orders",
                        "Key": A,
                        "UpdateExpression": "ADD n :x",
                        "ExpressionAttributeValues": {":x": {"N": amount}},
                    }
                }
            ],
        )

    def total() -> str:
        return str(dynamodb.get_item(TableName="orders", Key=A)["Item"]["n"]["N"])

    add("first")
    add("first")
    assert total() == "1"
    add("second")
    assert total() == "2"
    with pytest.raises(ClientError) as caught:
        add("first", "5")
    assert refused(caught) == "IdempotentParameterMismatchException"
    aws.control.advance(601)
    add("first")
    assert total() == "3"
    assert [name for name, _, _ in changes(aws)] == ["INSERT", "MODIFY", "MODIFY"]


def test_numbers_are_stored_shown_and_streamed_in_normal_form(aws: Emulator) -> None:
    """1.0 is 1 and 1E+2 is 100: in the item, in the stream, in what arithmetic makes."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(
        TableName="orders",
        Item=A | {"n": {"N": "1.0"}, "big": {"N": "1E+2"}, "l": {"L": [{"N": "0.50"}]}},
    )
    dynamodb.update_item(
        TableName="orders",
        Key=A,
        UpdateExpression="SET n = n + :half ADD big :x",
        ExpressionAttributeValues={":half": {"N": "1.50"}, ":x": {"N": "-1E2"}},
    )
    expected = A | {"n": {"N": "2.5"}, "big": {"N": "0"}, "l": {"L": [{"N": "0.5"}]}}
    assert dynamodb.get_item(TableName="orders", Key=A)["Item"] == expected
    assert [new for _, new, _ in changes(aws)] == [
        A | {"n": {"N": "1"}, "big": {"N": "100"}, "l": {"L": [{"N": "0.5"}]}},
        expected,
    ]


def test_38_digits_survive_arithmetic_and_the_39th_is_refused(aws: Emulator) -> None:
    """No sum is rounded: it is exact, or a ValidationException."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="orders", Item=A | {"n": {"N": "9" * 37 + "8"}})

    def add(value: str) -> None:
        dynamodb.update_item(
            TableName="orders",
            Key=A,
            UpdateExpression="ADD n :x",
            ExpressionAttributeValues={":x": {"N": value}},
        )

    add("1")
    assert dynamodb.get_item(TableName="orders", Key=A)["Item"]["n"] == {"N": "9" * 38}
    with pytest.raises(ClientError) as caught:
        add("0.1")
    assert refused(caught) == "ValidationException"
    with pytest.raises(ClientError) as caught:
        dynamodb.put_item(TableName="orders", Item=A | {"n": {"N": "9" * 39}})
    assert refused(caught) == "ValidationException"


def test_number_keys_that_are_equal_are_one_item(aws: Emulator) -> None:
    """1, 1.0 and 1E0 are the same key, as hash and as range, in every operation."""
    a_table(aws, keys="pk:N,sk:N")
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(
        TableName="orders", Item={"pk": {"N": "1"}, "sk": {"N": "2"}, "v": {"S": "a"}}
    )
    dynamodb.put_item(
        TableName="orders", Item={"pk": {"N": "1.0"}, "sk": {"N": "2.00"}, "v": {"S": "b"}}
    )
    key = {"pk": {"N": "1E0"}, "sk": {"N": "0.2E1"}}
    assert dynamodb.get_item(TableName="orders", Key=key)["Item"]["v"] == {"S": "b"}
    found = dynamodb.query(
        TableName="orders",
        KeyConditionExpression="pk = :p AND sk = :s",
        ExpressionAttributeValues={":p": {"N": "1.00"}, ":s": {"N": "2.0"}},
    )
    assert found["Count"] == 1
    dynamodb.delete_item(TableName="orders", Key=key)
    assert dynamodb.scan(TableName="orders")["Count"] == 0
    assert [name for name, _, _ in changes(aws)] == ["INSERT", "MODIFY", "REMOVE"]


def test_every_type_comes_back_as_it_went_in(aws: Emulator) -> None:
    """All ten types, nested, through the table and through the stream."""
    a_table(aws, keys="pk:B,sk:S")
    item: dict[str, dict[str, Any]] = {
        "pk": {"B": b"\x00\x01\xff"},
        "sk": {"S": "é\U0001f600"},
        "s": {"S": ""},
        "n": {"N": "-1.5"},
        "b": {"B": b""},
        "bool": {"BOOL": False},
        "null": {"NULL": True},
        "ss": {"SS": ["a", "é"]},
        "ns": {"NS": ["1", "2.5"]},
        "bs": {"BS": [b"\x00", b"\xff"]},
        "l": {"L": [{"B": b"deep"}, {"L": []}, {"M": {}}]},
        "m": {"M": {"a.b:c 'd\"": {"BS": [b"x"]}}},
    }
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="orders", Item=item)
    key = {"pk": item["pk"], "sk": item["sk"]}
    assert dynamodb.get_item(TableName="orders", Key=key)["Item"] == item
    assert dynamodb.scan(TableName="orders")["Items"] == [item]
    updated = dynamodb.update_item(
        TableName="orders",
        Key=key,
        UpdateExpression="SET l[3] = :x",
        ExpressionAttributeValues={":x": {"B": b"new"}},
        ReturnValues="ALL_NEW",
    )["Attributes"]
    assert updated["l"] == {"L": [*item["l"]["L"], {"B": b"new"}]}
    (_, first, _), (_, second, old) = changes(aws)
    assert first == old == item
    assert second == updated


def test_the_older_form_of_updates_keeps_types(aws: Emulator) -> None:
    """AttributeUpdates with PUT, ADD and DELETE, of every type."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(
        TableName="orders", Item=A | {"n": {"N": "1"}, "s": {"NS": ["1", "2"]}, "x": {"S": "x"}}
    )
    dynamodb.update_item(
        TableName="orders",
        Key=A,
        AttributeUpdates={
            "n": {"Action": "ADD", "Value": {"N": "0.50"}},
            "s": {"Action": "DELETE", "Value": {"NS": ["1.0"]}},
            "x": {"Action": "DELETE"},
            "b": {"Value": {"BOOL": True}},
            "raw": {"Action": "PUT", "Value": {"B": b"\xff"}},
        },
    )
    assert dynamodb.get_item(TableName="orders", Key=A)["Item"] == A | {
        "n": {"N": "1.5"},
        "s": {"NS": ["2"]},
        "b": {"BOOL": True},
        "raw": {"B": b"\xff"},
    }


def test_no_update_moves_an_item_to_another_key(aws: Emulator) -> None:
    """Key attributes cannot be updated, in the newer form or the older."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="orders", Item=A)
    attempts: list[dict[str, Any]] = [
        {
            "UpdateExpression": "SET pk = :b",
            "ExpressionAttributeValues": {":b": {"S": "b"}},
        },
        {"AttributeUpdates": {"pk": {"Action": "PUT", "Value": {"S": "b"}}}},
        {"AttributeUpdates": {"pk": {"Action": "DELETE"}}},
    ]
    for attempt in attempts:
        with pytest.raises(ClientError, match="part of the key") as caught:
            dynamodb.update_item(TableName="orders", Key=A, **attempt)
        assert refused(caught) == "ValidationException"
    assert dynamodb.scan(TableName="orders")["Items"] == [A]


def test_consumed_capacity_comes_only_when_asked_for(aws: Emulator) -> None:
    """By size for the plain operations, and not at all by default."""
    a_table(aws)
    item = A | {"v": {"S": "x" * 2500}}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("PutItem", {"Item": item}),
        ("GetItem", {"Key": A}),
        ("UpdateItem", {"Key": A}),
        ("Scan", {"FilterExpression": "attribute_exists(pk)"}),
        ("DeleteItem", {"Key": A}),
    ]
    for operation, params in requests:
        answer = raw(aws, operation, {"TableName": "orders"} | params).json()
        assert not [name for name in answer if "Consumed" in name], operation
    asked = {"TableName": "orders", "ReturnConsumedCapacity": "INDEXES"}
    written = raw(aws, "PutItem", asked | {"Item": item}).json()["ConsumedCapacity"]
    assert written == {"TableName": "orders", "CapacityUnits": 3.0, "Table": {"CapacityUnits": 3.0}}
    read = raw(aws, "GetItem", asked | {"Key": A}).json()["ConsumedCapacity"]
    assert read["CapacityUnits"] == 0.5


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"v": {"S": "x"}}, "Missing the key pk"),
        ({"pk": {"N": "1"}}, "Type mismatch for key pk expected: S actual: N"),
        ({"pk": {"S": ""}}, "cannot contain an empty string"),
        ({"pk": {"S": "x" * 2049}}, "maximum size limit of2048 bytes"),
        ({"pk": {"S": "a"}, "v": {"S": "x" * 410_000}}, "Item size has exceeded"),
        ({"pk": {"S": "a"}, "v": {"N": "1E+126"}}, "Number overflow"),
    ],
)
def test_an_illegal_item_is_refused_by_every_write(
    aws: Emulator, item: dict[str, Any], message: str
) -> None:
    """Put, batch and transaction refuse the same items, and leave nothing behind."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    good = {"PutRequest": {"Item": B}}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("put_item", {"TableName": "orders", "Item": item}),
        ("put_item", {"TableName": "orders", "Item": item, "ReturnValues": "ALL_OLD"}),
        ("batch_write_item", {"RequestItems": {"orders": [good, {"PutRequest": {"Item": item}}]}}),
    ]
    for method, params in calls:
        with pytest.raises(ClientError, match=message) as caught:
            getattr(dynamodb, method)(**params)
        assert refused(caught) == "ValidationException"
    with pytest.raises(ClientError):
        dynamodb.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": "orders", "Item": B}},
                {"Put": {"TableName": "orders", "Item": item}},
            ]
        )
    assert dynamodb.scan(TableName="orders")["Count"] == 0
    assert all_records(aws) == []


@pytest.mark.parametrize(
    ("view", "shows"),
    [
        ("KEYS_ONLY", set()),
        ("NEW_IMAGE", {"NewImage"}),
        ("OLD_IMAGE", {"OldImage"}),
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}),
    ],
)
def test_each_view_type_shows_what_it_says(aws: Emulator, view: str, shows: set[str]) -> None:
    """INSERT never has an old image, REMOVE never a new one, and the view hides the rest."""
    a_table(aws, keys="pk:S,sk:N", view=view)
    dynamodb = aws.client("dynamodb")
    key = {"pk": {"S": "a"}, "sk": {"N": "7"}}
    dynamodb.put_item(TableName="orders", Item=key | {"v": {"S": "1"}})
    dynamodb.put_item(TableName="orders", Item=key | {"v": {"S": "2"}})
    dynamodb.delete_item(TableName="orders", Key=key)
    possible = {
        "INSERT": {"NewImage"},
        "MODIFY": {"NewImage", "OldImage"},
        "REMOVE": {"OldImage"},
    }
    records = all_records(aws)
    assert [record["eventName"] for record in records] == list(possible)
    for record in records:
        body = record["dynamodb"]
        assert body["Keys"] == key
        assert body["StreamViewType"] == view
        assert body.keys() & {"NewImage", "OldImage"} == possible[record["eventName"]] & shows


def test_a_record_has_every_field_of_the_real_one(aws: Emulator) -> None:
    """Region, source, version, unique event id, whole-second time, size."""
    emulator_region = "eu-central-1"
    with Emulator(clock=ManualClock(1_750_000_000.75), region=emulator_region) as other:
        a_table(other)
        dynamodb = other.client("dynamodb")
        dynamodb.put_item(TableName="orders", Item=A | {"v": {"S": "xyz"}})
        dynamodb.put_item(TableName="orders", Item=B)
        first, second = sorted(
            all_records(other), key=lambda record: str(record["dynamodb"]["Keys"])
        )
    assert first["awsRegion"] == emulator_region
    assert first["eventSource"] == "aws:dynamodb"
    assert first["eventVersion"] == "1.1"
    assert first["eventID"] != second["eventID"]
    assert first["dynamodb"]["ApproximateCreationDateTime"].timestamp() == 1_750_000_000
    assert first["dynamodb"]["SizeBytes"] == (2 + 1) + (2 + 1 + 1 + 3)
    assert "userIdentity" not in first


def test_ttl_deletes_carry_the_identity_of_the_service(aws: Emulator) -> None:
    """Only what has expired is deleted, and its record says who did it."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    now = int(aws.clock.now_s())
    items: dict[str, dict[str, Any]] = {
        "past": {"N": str(now - 10)},
        "future": {"N": str(now + 10)},
        "text": {"S": str(now - 10)},
        "ancient": {"N": str(now - 6 * 365 * 86400)},
    }
    for name, expires in items.items():
        dynamodb.put_item(TableName="orders", Item={"pk": {"S": name}, "expires": expires})
    dynamodb.put_item(TableName="orders", Item={"pk": {"S": "none"}})
    with pytest.raises(Exception, match="not enabled"):
        aws.control.expire_ttl("orders")
    dynamodb.update_time_to_live(
        TableName="orders",
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"},
    )
    assert aws.control.expire_ttl("orders") == 1
    dynamodb.delete_item(TableName="orders", Key={"pk": {"S": "text"}})
    removed = [record for record in all_records(aws) if record["eventName"] == "REMOVE"]
    by_service = {
        record["dynamodb"]["Keys"]["pk"]["S"]: record.get("userIdentity") for record in removed
    }
    assert by_service == {
        "past": {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"},
        "text": None,
    }


def test_writes_to_one_key_and_their_records_have_one_order(aws: Emulator) -> None:
    """Writers that race on few keys: each key's records chain old to new without a break."""
    a_table(aws)
    keys = 4

    def write(writer: int) -> None:
        dynamodb = aws.client("dynamodb")
        for number in range(60):
            key = {"pk": {"S": str(number % keys)}}
            if number % 7 == 6:
                dynamodb.delete_item(TableName="orders", Key=key)
            elif number % 3:
                dynamodb.update_item(
                    TableName="orders",
                    Key=key,
                    UpdateExpression="SET w = :w ADD n :one",
                    ExpressionAttributeValues={":w": {"S": str(writer)}, ":one": {"N": "1"}},
                )
            else:
                dynamodb.put_item(TableName="orders", Item=key | {"w": {"S": f"{writer}-{number}"}})

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chains: dict[str, list[Any]] = defaultdict(lambda: [None])
    for record in all_records(aws):
        body = record["dynamodb"]
        chain = chains[body["Keys"]["pk"]["S"]]
        assert body.get("OldImage") == chain[-1]
        chain.append(body.get("NewImage"))
    table = {
        item["pk"]["S"]: item for item in aws.client("dynamodb").scan(TableName="orders")["Items"]
    }
    assert {name: chain[-1] for name, chain in chains.items() if chain[-1]} == table


def test_a_table_without_a_stream_works_and_one_can_be_switched_on(aws: Emulator) -> None:
    """No stream: no ARN, no records; switched on later it shows what comes after."""
    assert "LatestStreamArn" not in a_table(aws, view=None)
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName="orders", Item=A)
    dynamodb.update_table(
        TableName="orders",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    dynamodb.put_item(TableName="orders", Item=B)
    assert changes(aws) == [("INSERT", B, None)]
    table_arn = "arn:aws:dynamodb:us-east-1:123456789012:table/orders"
    assert stream_arn(aws).startswith(f"{table_arn}/stream/")


def test_requests_without_their_parameters_are_refused_in_order(aws: Emulator) -> None:
    """Whatever a client leaves out or misspells is its own error, not the server's."""
    a_table(aws)
    requests: list[tuple[str, Any, str]] = [
        ("PutItem", {}, "ValidationException"),
        ("PutItem", {"TableName": "orders"}, "ValidationException"),
        ("PutItem", {"TableName": "nothing", "Item": A}, "ResourceNotFoundException"),
        ("PutItem", {"TableName": "orders", "Item": {"pk": "a"}}, "SerializationException"),
        ("PutItem", b"{", "SerializationException"),
        ("PutItem", b"[]", "SerializationException"),
        ("GetItem", {"TableName": "orders", "Key": {"x": {"S": "a"}}}, "ValidationException"),
        ("GetItem", {"TableName": "orders", "Key": {"pk": {"N": "1"}}}, "ValidationException"),
        ("BatchWriteItem", {}, "ValidationException"),
        ("BatchWriteItem", {"RequestItems": {"orders": [{}]}}, "ValidationException"),
        ("Scan", {"TableName": "nothing"}, "ResourceNotFoundException"),
        ("Scan", {"TableName": "orders", "Segment": 2, "TotalSegments": 2}, "ValidationException"),
        ("Scan", {"TableName": "orders", "Segment": 0}, "ValidationException"),
        ("Scan", {"TableName": "orders", "TotalSegments": 2}, "ValidationException"),
        ("Scan", {"TableName": "orders", "Limit": 0}, "ValidationException"),
        ("Query", {"TableName": "orders"}, "ValidationException"),
        ("MakeCoffee", {}, "UnknownOperationException"),
        ("CreateTable", {"TableName": "x"}, "ValidationException"),
    ]
    for operation, params, code in requests:
        answer = raw(aws, operation, params)
        assert answer.status == 400, (operation, params, answer.body)
        assert answer.json()["__type"].rpartition("#")[2] == code, (operation, params)
