"""DynamoDB of one region: moto's backend with our tables, updates and transactions.

Owns the tables of the region. Must not know requests, HTTP or faults. Not safe for threads: the
caller holds the world's lock.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.dynamodb.exceptions import (
    ConditionalCheckFailed,
    DeletionProtectedException,
    ItemSizeTooLarge,
    ItemSizeToUpdateTooLarge,
    MultipleTransactionsException,
    ResourceInUseException,
    TooManyTransactionsException,
    TransactionCanceledException,
    TransactWriteSingleOpException,
)
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.parsing.executors import UpdateExpressionExecutor
from moto.dynamodb.parsing.expressions import (  # type: ignore[attr-defined]  # untyped module
    UpdateExpressionParser,
)
from moto.dynamodb.parsing.validators import UpdateExpressionValidator

from emulator.attributes import Attributes, normalise_item
from emulator.errors import AwsError, validation
from emulator.images import Image
from emulator.items import Item
from emulator.storage import ItemKey
from emulator.tables import Home, Table

# Sums of two legal numbers are exact within this precision; the limit of 38 digits is checked on
# the result.
_EXACT = decimal.Context(prec=300, traps=[decimal.Inexact, decimal.InvalidOperation])


@dataclass(frozen=True, slots=True)
class Planned:
    """One write of a transaction that has passed its condition."""

    table: Table
    key: ItemKey
    attributes: Attributes | None
    image: Image | None = None


class Backend(DynamoDBBackend):
    """The tables of one region."""

    tables: dict[str, Table]  # type: ignore[assignment]

    def __init__(
        self,
        region: str,
        account_id: str,
        home: Home,
    ) -> None:
        super().__init__(region, account_id)
        self._home = home

    def get_table(self, table_name: str) -> Table:
        return super().get_table(table_name)  # type: ignore[return-value]

    def create_table(  # type: ignore[override]  # moto's handler passes all by name
        self, name: str, **schema: Any
    ) -> Table:
        if name in self.tables:
            raise ResourceInUseException(f"Table already exists: {name}")
        # moto leaves CloudFormation's abstract methods open on its own Table too.
        table = Table(  # type: ignore[abstract]
            name,
            home=self._home,
            account_id=self.account_id,
            region=self.region_name,
            **schema,
        )
        self.tables[name] = table
        return table

    def delete_table(self, name: str) -> Table:
        """Deletes a table; its stream is disabled and stays readable until it ages out."""
        table = self.get_table(name)
        if table.deletion_protection_enabled:
            raise DeletionProtectedException(name)
        table.set_stream_specification(None)
        return self.tables.pop(table.name)

    def update_table_streams(self, table: Any, stream_specification: dict[str, Any]) -> None:
        wanted = bool(stream_specification.get("StreamEnabled"))
        if wanted == (table.stream is not None):
            raise validation(
                f"Table already has an enabled stream: TableName: {table.name}"
                if wanted
                else f"Table has no enabled stream to disable: TableName: {table.name}"
            )
        table.set_stream_specification(stream_specification)

    # Writes

    def update_item(
        self,
        table_name: str,
        key: Attributes,
        update_expression: str,
        expression_attribute_names: dict[str, Any],
        expression_attribute_values: dict[str, Any],
        attribute_updates: dict[str, Any] | None = None,
        expected: dict[str, Any] | None = None,
        condition_expression: str | None = None,
        return_values_on_condition_check_failure: str | None = None,
    ) -> Item:
        """Updates a copy of the item and writes it whole: one record, or none on any error."""
        table = self.get_table(table_name)
        place = table.keys.exact_place(key)
        table.check_condition(
            table.store.get(place),
            expected,
            condition_expression,
            expression_attribute_names,
            expression_attribute_values,
            return_old=return_values_on_condition_check_failure == "ALL_OLD",
        )
        attributes = self._updated(
            table,
            key,
            place,
            update_expression,
            expression_attribute_names,
            expression_attribute_values,
            attribute_updates,
        )
        table.write(place, attributes)
        return table.item(attributes)

    def _updated(
        self,
        table: Table,
        key: Attributes,
        place: ItemKey,
        expression: str,
        names: dict[str, Any] | None,
        values: dict[str, Any] | None,
        attribute_updates: dict[str, Any] | None = None,
    ) -> Attributes:
        current = table.store.get(place)
        item = table.item(key if current is None else current.attributes())
        try:
            with decimal.localcontext(_EXACT):
                if expression:
                    validator = UpdateExpressionValidator(
                        UpdateExpressionParser.make(expression),
                        expression_attribute_names=names or {},
                        expression_attribute_values=values or {},
                        item=item,
                        table=table,
                    )
                    update = validator.validate()
                    update.normalize()
                    UpdateExpressionExecutor(update, item, names or {}).execute()
                elif attribute_updates:
                    item.validate_no_empty_key_values(attribute_updates, table.attribute_keys)
                    item.update_with_attribute_updates(attribute_updates)
        except ItemSizeTooLarge as error:
            raise ItemSizeToUpdateTooLarge from error
        attributes = item.plain()
        normalise_item(attributes)
        for name in table.keys.names:
            if attributes.get(name) != key[name]:
                raise validation(
                    "One or more parameter values were invalid: Cannot update attribute "
                    f"{name}. This attribute is part of the key"
                )
        return attributes

    def delete_item(
        self,
        table_name: str,
        key: Attributes,
        expression_attribute_names: dict[str, Any] | None = None,
        expression_attribute_values: dict[str, Any] | None = None,
        condition_expression: str | None = None,
        return_values_on_condition_check_failure: str | None = None,
    ) -> Item | None:
        table = self.get_table(table_name)
        place = table.keys.exact_place(key)
        table.check_condition(
            table.store.get(place),
            None,
            condition_expression,
            expression_attribute_names,
            expression_attribute_values,
            return_old=return_values_on_condition_check_failure == "ALL_OLD",
        )
        return table.item_of(table.write(place, None))

    # Transactions

    def transact_write_items(self, transact_items: list[dict[str, Any]]) -> None:
        """Checks every operation first, then applies them all; one that fails leaves nothing.

        The records of a transaction stand in each item's own shard, as at AWS, which promises
        nothing about their neighbourhood.
        """
        if len(transact_items) > 100:
            raise TooManyTransactionsException
        planned: list[Planned] = []
        reasons: list[Any] = []
        seen: set[tuple[str, ItemKey]] = set()
        for entry in transact_items:
            if len(entry) != 1:
                raise TransactWriteSingleOpException
            ((kind, operation),) = entry.items()
            table = self.get_table(operation["TableName"])
            place = (
                table.keys.place(operation["Item"])
                if kind == "Put"
                else table.keys.exact_place(operation["Key"])
            )
            if (table.name, place) in seen:
                raise MultipleTransactionsException
            seen.add((table.name, place))
            try:
                write = self._plan(kind, operation, table, place)
            except ConditionalCheckFailed as error:
                reasons.append(
                    (
                        "ConditionalCheckFailed",
                        error.message,
                        self._old_item(operation, table, place),
                    )
                )
                continue
            except (AwsError, JsonRESTError) as error:
                code = error.code if isinstance(error, AwsError) else error.relative_error_type
                reasons.append((code.removesuffix("Exception"), error.message, None))
                continue
            reasons.append((None, None, None))
            if write is not None:
                planned.append(write)
        if any(code is not None for code, _, _ in reasons):
            raise TransactionCanceledException(reasons)
        for write in planned:
            write.table.write(write.key, write.attributes, write.image)

    def _plan(
        self, kind: str, operation: dict[str, Any], table: Table, place: ItemKey
    ) -> Planned | None:
        names = operation.get("ExpressionAttributeNames")
        values = operation.get("ExpressionAttributeValues")
        table.check_condition(
            table.store.get(place), None, operation.get("ConditionExpression"), names, values
        )
        if kind == "ConditionCheck":
            return None
        if kind == "Delete":
            return Planned(table, place, None)
        if kind == "Put":
            item = operation["Item"]
            return Planned(table, place, item, table.checked_image(item))
        if kind != "Update":
            raise TransactWriteSingleOpException
        attributes = self._updated(
            table, operation["Key"], place, operation["UpdateExpression"], names, values
        )
        return Planned(table, place, attributes, table.checked_image(attributes))

    @staticmethod
    def _old_item(operation: dict[str, Any], table: Table, place: ItemKey) -> Attributes | None:
        if operation.get("ReturnValuesOnConditionCheckFailure") != "ALL_OLD":
            return None
        image = table.store.get(place)
        return None if image is None else image.attributes()
