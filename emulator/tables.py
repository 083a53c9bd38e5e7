"""A table: moto's model of its schema, with our own storage of its items and its stream.

Owns conditions, writes and the record that each write leaves. moto's `Table` gives the
schema, the description, and Query and Scan by index. Must not know requests, HTTP or faults. Not
safe for threads: the caller holds the world's lock, so that a write and its record are one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from moto.dynamodb.comparisons import get_expected, get_filter_expression
from moto.dynamodb.exceptions import ConditionalCheckFailed
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.models.table import Table as MotoTable

from emulator.attributes import Attributes, normalise_item, normalise_value, same_attributes
from emulator.clock import naive_utc
from emulator.errors import validation
from emulator.images import Image, encode_image, hash_point, partition_digest
from emulator.items import Item
from emulator.keys import KeySchema
from emulator.past import Past, walk_as_of
from emulator.records import Change
from emulator.storage import ItemKey, ItemStore

if TYPE_CHECKING:
    from emulator.settings import TableSettings
    from emulator.streams import Stream

MAX_ITEM_BYTES = 400 * 1024
MAX_PAGE_BYTES = 1024 * 1024


class Home(Protocol):
    """What tables need of the world they are in."""

    def now_s(self) -> float: ...

    def new_table_id(self) -> str: ...

    def open_stream(self, table: Table, view: str) -> Stream: ...

    def settings_of(self, table_name: str) -> TableSettings: ...


class Table(MotoTable):
    """One table, with its items, its stream and its recent past."""

    def __new__(cls, *_: Any, **__: Any) -> Table:
        # moto keeps every instance of its models for ever: a table would outlive its emulator.
        return object.__new__(cls)

    def __init__(
        self,
        name: str,
        *,
        home: Home,
        **schema: Any,
    ) -> None:
        self.store = ItemStore()
        self.past = Past()
        self.table_id = home.new_table_id()
        self.stream: Stream | None = None
        self._home = home
        self.scanned_bytes = 0
        self._partition_only: bytes | None = None
        super().__init__(name, **schema)
        self.keys = KeySchema(
            self.hash_key_attr, self.hash_key_type, self.range_key_attr, self.range_key_type
        )
        self.created_at = naive_utc(home.now_s())

    # Schema

    def set_stream_specification(self, streams: dict[str, Any] | None) -> None:
        """Switches the stream on or off; the label of the last one stays, as at AWS."""
        wanted = bool(streams and (streams.get("StreamEnabled") or streams.get("StreamViewType")))
        if wanted and streams is not None:
            view = streams.get("StreamViewType")
            if view is None:
                raise validation(
                    "One or more parameter values were invalid: StreamSpecification must have "
                    "StreamViewType when StreamEnabled is true"
                )
            self.stream = self._home.open_stream(self, view)
            self.latest_stream_label = self.stream.identity.label
            self.stream_specification = {"StreamEnabled": True, "StreamViewType": view}
        else:
            if self.stream is not None:
                self.stream.disable(self._home.now_s())
                self.stream = None
            self.stream_specification = {"StreamEnabled": False}

    def describe(self, base_key: str = "TableDescription") -> dict[str, Any]:
        description = super().describe(base_key=base_key)
        shown = description[base_key]
        shown["TableId"] = self.table_id
        for name in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
            if not shown[name]:
                del shown[name]
        return description

    def __len__(self) -> int:
        return len(self.store)

    # Writing

    def write(
        self,
        key: ItemKey,
        attributes: Attributes | None,
        image: Image | None = None,
        *,
        is_expiry: bool = False,
    ) -> Image | None:
        """Puts an item (None deletes it), with its record; returns the old image.

        `image` is that of the attributes, where the caller has checked them already. A write that
        changes nothing leaves no record.
        """
        new = image or (self.checked_image(attributes) if attributes is not None else None)
        old = self.store.get(key)
        if new is None:
            if old is None:
                return None
            self.store.remove(key)
        else:
            if old is not None and (
                old.raw == new.raw or same_attributes(old.attributes(), attributes or {})
            ):
                return old
            self.store.put(key, new)
        self.past.remember(key, old, self._home.now_s(), self._stale_reads_s)
        if self.stream is not None:
            keys = self.keys.of(attributes or (old.attributes() if old else {}))
            change = Change(
                hash_point(key[0]), encode_image(keys, normalise_item(keys)), old, new, is_expiry
            )
            self.stream.append(change, self._home.now_s())
        return old

    @staticmethod
    def checked_image(attributes: Attributes) -> Image:
        size_bytes = normalise_item(attributes)
        if size_bytes > MAX_ITEM_BYTES:
            raise validation("Item size has exceeded the maximum allowed size")
        return encode_image(attributes, size_bytes)

    def put_item(
        self,
        item_attrs: Attributes,
        expected: dict[str, Any] | None = None,
        condition_expression: str | None = None,
        expression_attribute_names: dict[str, str] | None = None,
        expression_attribute_values: dict[str, Any] | None = None,
        overwrite: bool = False,
        return_values_on_condition_check_failure: str | None = None,
    ) -> Item:
        """moto's way in for a put; the condition is checked against the item as it stands."""
        key = self.keys.place(item_attrs)
        if not overwrite:
            self.check_condition(
                self.store.get(key),
                expected,
                condition_expression,
                expression_attribute_names,
                expression_attribute_values,
                return_old=return_values_on_condition_check_failure == "ALL_OLD",
            )
        self.write(key, item_attrs)
        return self.item(item_attrs)

    def delete_item(self, hash_key: DynamoType, range_key: DynamoType | None) -> Item | None:
        """moto's way in for a delete."""
        return self.item_of(self.write(self._typed_key(hash_key, range_key), None))

    def check_condition(
        self,
        current: Image | None,
        expected: dict[str, Any] | None,
        expression: str | None,
        names: dict[str, str] | None,
        values: dict[str, Any] | None,
        *,
        return_old: bool = False,
    ) -> None:
        """Evaluates a condition on an item.

        Raises:
            ConditionalCheckFailed: it does not hold.
        """
        if not expected and not expression:
            return
        item = self.item_of(current)
        if get_expected(expected or {}).expr(item) and get_filter_expression(
            expression, names, values
        ).expr(item):
            return
        raise ConditionalCheckFailed(
            item=current.attributes() if return_old and current is not None else None
        )

    # Reading, as moto's models see items

    def item(self, attributes: Attributes) -> Item:
        """A moto item; changing it changes nothing in the table."""
        return Item.of(attributes, self.hash_key_attr, self.range_key_attr)

    def item_of(self, image: Image | None) -> Item | None:
        return None if image is None else self.item(image.attributes())

    def get_item(
        self,
        hash_key: DynamoType,
        range_key: DynamoType | None = None,
        projection_expression: list[list[str]] | None = None,
    ) -> Item | None:
        item = self.item_of(self.store.get(self._typed_key(hash_key, range_key)))
        if item is not None and projection_expression:
            return item.project(projection_expression)
        return item

    def _typed_key(self, hash_key: DynamoType, range_key: DynamoType | None) -> ItemKey:
        attributes = {self.hash_key_attr: {hash_key.type: hash_key.value}}
        if range_key is not None and self.range_key_attr is not None:
            attributes[self.range_key_attr] = {range_key.type: range_key.value}
        return self.keys.exact_place(attributes)

    def all_items(self) -> list[Item]:  # type: ignore[override]
        """Every item, or one partition's while a query runs on it."""
        if self._partition_only is not None:
            images: Iterator[tuple[ItemKey, Image]] = self.store.partition(self._partition_only)
        else:
            images = self.store.walk()
        return [self.item(image.attributes()) for _, image in images]

    def has_idx_items(self, index_name: str) -> list[Item]:  # type: ignore[override]
        names = {key["AttributeName"] for key in self.get_index(index_name).schema}
        return [item for item in self.all_items() if names.issubset(item.attrs)]

    def query(
        self,
        hash_key: DynamoType | None,
        range_comparison: str | None,
        range_objs: list[DynamoType],
        limit: int,
        exclusive_start_key: Attributes,
        scan_index_forward: bool,
        projection_expressions: list[list[str]] | None,
        index_name: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """moto's query over the items of one partition, or over all for an index."""
        if hash_key is not None and not index_name:
            value = {hash_key.type: hash_key.value}
            normalise_value(value)
            self._partition_only = partition_digest(value)
        try:
            return super().query(
                hash_key,
                range_comparison,
                range_objs,
                limit,
                exclusive_start_key,
                scan_index_forward,
                projection_expressions,
                index_name,
                *args,
                **kwargs,
            )
        finally:
            self._partition_only = None

    def scan(
        self,
        filters: dict[str, Any],
        limit: int | None,
        exclusive_start_key: Attributes | None,
        filter_expression: Any = None,
        index_name: str | None = None,
        consistent_read: bool = False,
        projection_expression: list[list[str]] | None = None,
        segments: tuple[Any, Any] = (None, None),
    ) -> Any:
        """A page of a scan that filters or projects; a plain one is `scan_page` alone."""
        if index_name:
            return super().scan(
                filters,
                limit,  # type: ignore[arg-type]  # moto's own handler passes None
                exclusive_start_key,  # type: ignore[arg-type]
                filter_expression,
                index_name,
                consistent_read,
                projection_expression,
                segments,
            )
        images, last_key = self.scan_page(
            limit, exclusive_start_key, segments, is_consistent=consistent_read
        )
        # Expressions look at moto items; what moto's handler gets back it only reads.
        items = [self.item(image.attributes()) for image in images]
        kept = [
            item
            for item in items
            if _passes(item, filters)
            and (filter_expression is None or filter_expression.expr(item))
        ]
        if projection_expression:
            kept = [item.project(projection_expression) for item in kept]
        return kept, len(items), last_key

    def scan_page(
        self,
        limit: int | None,
        exclusive_start_key: Attributes | None,
        segments: tuple[int | None, int | None] = (None, None),
        *,
        is_consistent: bool = True,
    ) -> tuple[list[Image], Attributes | None]:
        """One page of at most 1 MB: its images, and the key to go on from if there may be more."""
        after = self.keys.exact_place(exclusive_start_key) if exclusive_start_key else None
        segment, total = segments[0] or 0, segments[1] or 1
        held = {} if is_consistent else self._held_before()
        walk = (
            walk_as_of(self.store, held, after, segment, total)
            if held
            else self.store.walk(after, segment, total)
        )
        images: list[Image] = []
        last_key: Attributes | None = None
        size_bytes = 0
        for _, image in walk:
            size_bytes += image.size_bytes
            # The item that passes 1 MB is the page's last, and a page that Limit ends has a key to
            # go on from even when nothing follows; both as at AWS.
            images.append(image)
            if size_bytes > MAX_PAGE_BYTES or len(images) == limit:
                last_key = self.keys.of(image.attributes())
                break
        self.scanned_bytes = size_bytes
        return images, last_key

    def read(self, key: ItemKey, *, is_consistent: bool) -> Image | None:
        """One item, or what a read that is not consistent may still see of it."""
        if not is_consistent:
            held = self._held_before()
            if key in held:
                return held[key]
        return self.store.get(key)

    def _held_before(self) -> dict[ItemKey, Image | None]:
        if self._stale_reads_s <= 0:
            return {}
        return self.past.since(self._home.now_s() - self._stale_reads_s)

    @property
    def _stale_reads_s(self) -> float:
        return self._home.settings_of(self.name).stale_reads_s


def _passes(item: Item, filters: dict[str, Any]) -> bool:
    for name, (operator, values) in filters.items():
        value = item.attrs.get(name)
        if value is None:
            if operator != "NULL":
                return False
        elif not value.compare(operator, values):
            return False
    return True
