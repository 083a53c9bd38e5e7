"""What the emulator leans on in moto. A failure here means: moto moved, look before you update.

Each test names one lean: a class that is subclassed, a method that is overridden or called, a flaw
that is gone round. Where moto repairs a flaw, the way round it can go.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import moto
import pytest
from moto.core.common_models import BaseModel
from moto.core.exceptions import JsonRESTError
from moto.core.request import Request
from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import camelcase_to_underscores
from moto.dynamodb import models as dynamodb_models
from moto.dynamodb import responses as dynamodb_responses
from moto.dynamodb.comparisons import get_expected, get_filter_expression
from moto.dynamodb.exceptions import ConditionalCheckFailed, TransactionCanceledException
from moto.dynamodb.models import DynamoDBBackend, table_export
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.parsing.executors import UpdateExpressionExecutor
from moto.dynamodb.parsing.validators import UpdateExpressionValidator
from moto.dynamodb.responses import DynamoHandler
from moto.s3.models import FakeKey, S3Backend, s3_backends
from moto.s3.responses import S3Response

from emulator import Front, ManualClock, World
from emulator.dynamodb_api import OPERATIONS
from emulator.items import Item as EmulatedItem
from emulator.tables import Table as EmulatedTable


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_version_is_the_one_that_was_read() -> None:
    """The emulator was built on a reading of this version's sources."""
    assert moto.__version__ == "5.2.5"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            Table.__init__,
            (
                "self table_name account_id region schema attr throughput billing_mode indexes "
                "global_indexes streams sse_specification tags deletion_protection_enabled "
                "warm_throughput"
            ),
        ),
        (Table.set_stream_specification, "self streams"),
        (Table.describe, "self base_key"),
        (
            Table.put_item,
            (
                "self item_attrs expected condition_expression expression_attribute_names "
                "expression_attribute_values overwrite return_values_on_condition_check_failure"
            ),
        ),
        (Table.get_item, "self hash_key range_key projection_expression"),
        (Table.delete_item, "self hash_key range_key"),
        (
            Table.query,
            (
                "self hash_key range_comparison range_objs limit exclusive_start_key "
                "scan_index_forward projection_expressions index_name consistent_read "
                "filter_expression hash_key_conditions range_key_conditions filter_kwargs"
            ),
        ),
        (
            Table.scan,
            (
                "self filters limit exclusive_start_key filter_expression index_name "
                "consistent_read projection_expression segments"
            ),
        ),
        (Table.all_items, "self"),
        (Table.has_idx_items, "self index_name"),
        (DynamoDBBackend.__init__, "self region_name account_id"),
        (
            DynamoDBBackend.create_table,
            (
                "self name schema throughput attr global_indexes indexes streams billing_mode "
                "sse_specification tags deletion_protection_enabled warm_throughput"
            ),
        ),
        (DynamoDBBackend.delete_table, "self name"),
        (DynamoDBBackend.update_table_streams, "self table stream_specification"),
        (
            DynamoDBBackend.update_item,
            (
                "self table_name key update_expression expression_attribute_names "
                "expression_attribute_values attribute_updates expected condition_expression "
                "return_values_on_condition_check_failure"
            ),
        ),
        (
            DynamoDBBackend.delete_item,
            (
                "self table_name key expression_attribute_names expression_attribute_values "
                "condition_expression return_values_on_condition_check_failure"
            ),
        ),
        (DynamoDBBackend.transact_write_items, "self transact_items"),
        (Item.__init__, "self hash_key range_key attrs"),
        (Item.project, "self projection_expressions"),
        (Item.to_json, "self root_attr_name"),
        (Item.update_with_attribute_updates, "self attribute_updates"),
        (
            UpdateExpressionValidator.__init__,
            "self expression expression_attribute_names expression_attribute_values item table",
        ),
        (
            UpdateExpressionExecutor.__init__,
            "self update_ast item expression_attribute_names",
        ),
        (S3Backend.__init__, "self region_name account_id"),
        (S3Backend.create_bucket, "self bucket_name region_name bucket_namespace"),
        (S3Response.key_response, "self request full_url headers"),
        (S3Response.bucket_response, "self request full_url headers"),
        (S3Response.get_current_account, "self"),
        (Request.from_primitives, "method url headers body"),
    ],
    ids=lambda value: value.__qualname__ if callable(value) else "",
)
def test_what_is_overridden_or_called_has_its_parameters(
    function: Callable[..., Any], expected: str
) -> None:
    """An override with other parameters than moto's callers pass would go unnoticed."""
    assert parameters(function) == expected.split()


def test_every_operation_has_a_method_of_moto_behind_it() -> None:
    """What is not answered directly goes to a method of this name."""
    missing = [
        operation
        for operation in OPERATIONS
        if not hasattr(DynamoHandler, camelcase_to_underscores(operation))
    ]
    assert missing == []
    assert isinstance(inspect.getattr_static(DynamoHandler, "dynamodb_backend"), property)
    assert issubclass(DynamoHandler, BaseResponse)
    assert isinstance(ActionResult({"a": 1}).result, dict)


def test_moto_items_live_nowhere_but_behind_all_items() -> None:
    """Whoever in moto reads `table.items` directly would find our tables empty."""
    reached = {
        module.__name__: [
            line.strip()
            for line in inspect.getsource(module).splitlines()
            if re.search(r"(table|self|source)\.items\b(?!\()", line)
        ]
        for module in (dynamodb_models, table_export, dynamodb_responses)
    }
    assert reached == {name: [] for name in reached}
    in_table = [
        name
        for name, method in inspect.getmembers(Table, inspect.isfunction)
        if "self.items" in inspect.getsource(method)
    ]
    assert sorted(in_table) == [
        "__init__",
        "__len__",
        "all_items",
        "delete_item",
        "get_item",
        "has_idx_items",
        "put_item",
    ]


def test_conditions_take_an_item_or_none() -> None:
    """Both kinds of condition evaluate on a moto item, and on None for one that is not there."""
    item = Item(DynamoType({"S": "a"}), None, {"v": {"N": "1"}})
    compiled = get_filter_expression("v = :v", {}, {":v": {"N": "1.0"}})
    assert compiled.expr(item)
    assert not compiled.expr(None)
    assert get_expected({"v": {"Exists": False}}).expr(None)


def test_errors_carry_what_is_read_from_them() -> None:
    """Code, message and body of moto's errors go out as AWS errors."""
    error = ConditionalCheckFailed(item={"pk": {"S": "a"}})
    assert isinstance(error, JsonRESTError)
    assert error.relative_error_type == "ConditionalCheckFailedException"
    assert '"Item"' in error.description
    cancelled = TransactionCanceledException([("ConditionalCheckFailed", "m", None)])
    assert '"CancellationReasons"' in cancelled.description


def test_moto_keeps_its_instances_and_ours_are_not_among_them() -> None:
    """The leak that `__new__` goes round is still there, and still gone round."""
    assert "instances_tracked" in inspect.getsource(BaseModel.__new__)
    kept = (Item, Table, EmulatedItem, EmulatedTable)
    before = [len(vars(model)["instances_tracked"]) for model in kept]
    front = Front(World(clock=ManualClock()))
    front.world.create_table("t")
    for number in range(5):
        update = {
            "TableName": "t",
            "Key": {"pk": {"S": "a"}},
            "UpdateExpression": "SET v = :v",
            "ExpressionAttributeValues": {":v": {"N": str(number)}},
        }
        assert front.call("UpdateItem", update).status == 200
    projected = {"TableName": "t", "ProjectionExpression": "v", "FilterExpression": "v > :v"}
    values = {"ExpressionAttributeValues": {":v": {"N": "1"}}}
    assert front.call("Scan", projected | values).status == 200
    front.close()
    assert [len(vars(model)["instances_tracked"]) for model in kept] == before


def test_s3_finds_its_backend_by_account_and_partition() -> None:
    """Isolation of buckets stands on this registry and on the list of bucket owners."""
    assert isinstance(s3_backends.bucket_accounts, dict)
    assert isinstance(s3_backends["912345678901"]["aws"], S3Backend)
    del s3_backends["912345678901"]
    assert hasattr(FakeKey, "dispose")


def test_flaws_of_moto_that_the_emulator_goes_round() -> None:
    """Each is why a piece of ours exists; a repaired one fails here and the piece can go."""
    assert DynamoType({"N": "1.0"}).to_json() == {"N": "1.0"}
    assert str((DynamoType({"N": "9" * 38}) + DynamoType({"N": "0.1"})).value) != "9" * 38 + ".1"
    wrong = Item(DynamoType({"S": "a"}), None, {})
    wrong.update_with_attribute_updates({"b": {"Action": "PUT", "Value": {"BOOL": True}}})
    assert wrong.attrs["b"].type == "S"
    assert "StreamRecord" in inspect.getsource(inspect.getmodule(Table) or Table)
    assert "deepcopy" in inspect.getsource(DynamoDBBackend.transact_write_items)
    assert "deepcopy" in inspect.getsource(Table.scan)
