"""Items as moto's expressions see them.

Owns the two ways between DynamoDB JSON and moto's `Item`, and projection. Must not know tables.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from moto.dynamodb.exceptions import IncorrectDataType
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.models.dynamo_type import Item as MotoItem

from emulator.attributes import Attributes
from emulator.errors import validation

_STEP = re.compile(r"\[([0-9]+)\]")

# What a projection wants below a name or an index; None is everything.
_Wanted = dict[str | int, Any]


class Item(MotoItem):
    """A moto item over a copy of an item's attributes: changing it changes no table.

    moto keeps every instance of its models for ever; `__new__` and `project` go around that, or a
    long run would hold each item that a condition has looked at.
    """

    def __new__(cls, *_: Any, **__: Any) -> Item:
        return object.__new__(cls)

    @classmethod
    def of(cls, attributes: Attributes, hash_name: str, range_name: str | None) -> Item:
        """The item with these attributes."""
        range_key = DynamoType(attributes[range_name]) if range_name else None
        item = cls(DynamoType(attributes[hash_name]), range_key, {})
        for name, value in attributes.items():
            # Around LimitedSizeDict, whose check sums the whole item for each attribute.
            dict.__setitem__(item.attrs, name, DynamoType(value))
        return item

    def plain(self) -> Attributes:
        """The attributes as DynamoDB JSON."""
        return {name: plain_value(value) for name, value in self.attrs.items()}

    def to_json(self, root_attr_name: str = "Attributes") -> dict[str, Any]:
        return {root_attr_name: self.plain()}

    def update_with_attribute_updates(self, attribute_updates: dict[str, Any]) -> None:
        """The older form of an update: an action per attribute.

        moto's own takes booleans, binary and some sets for text or lists.
        """
        for name, update in attribute_updates.items():
            action, value = update.get("Action", "PUT"), update.get("Value")
            if action == "DELETE" and value is None:
                self.attrs.pop(name, None)
            elif value is None:
                raise validation(
                    "One or more parameter values were invalid: Only DELETE action is allowed "
                    "when no attribute value is specified"
                )
            elif action == "PUT":
                self.attrs[name] = DynamoType(value)
            else:
                self._combine(name, action, DynamoType(value))

    def _combine(self, name: str, action: str, value: DynamoType) -> None:
        present = self.attrs.get(name)
        adds = action == "ADD"
        if present is None:
            if adds:
                self.attrs[name] = value
            return
        if present.type != value.type:
            raise IncorrectDataType
        if value.is_set():
            members = [member for member in present.value if member not in value.value]
            members += value.value if adds else []
            if members:
                self.attrs[name] = DynamoType({value.type: members})
            else:
                del self.attrs[name]
        elif adds and value.is_number():
            total = Decimal(present.value) + Decimal(value.value)
            self.attrs[name] = DynamoType({"N": str(total)})
        elif adds and value.is_list():
            self.attrs[name] = DynamoType({"L": present.value + value.value})
        else:
            raise IncorrectDataType

    def project(self, projection_expressions: list[list[str]]) -> Item:
        """A new item with the named paths only; list elements that stay close ranks."""
        wanted: _Wanted = {}
        for path in projection_expressions:
            _want(wanted, path)
        projected = Item(self.hash_key, self.range_key, {})
        for name, below in wanted.items():
            value = self.attrs.get(str(name))
            picked = _pick(value, below) if value is not None else None
            if picked is not None:
                dict.__setitem__(projected.attrs, str(name), picked)
        return projected


def plain_value(value: DynamoType) -> dict[str, Any]:
    """moto's typed value as DynamoDB JSON, with binary as base64 text at every depth."""
    content = value.value
    if value.type == "L":
        return {"L": [plain_value(member) for member in content]}
    if value.type == "M":
        return {"M": {name: plain_value(member) for name, member in content.items()}}
    return {value.type: content}


def _want(wanted: _Wanted, path: list[str]) -> None:
    steps: list[str | int] = []
    for part in path:
        steps.append(part.partition("[")[0])
        steps.extend(int(index) for index in _STEP.findall(part))
    for step in steps[:-1]:
        below = wanted.setdefault(step, {})
        if below is None:
            return
        wanted = below
    wanted[steps[-1]] = None


def _pick(value: DynamoType, wanted: _Wanted | None) -> DynamoType | None:
    if wanted is None:
        return value
    if value.type == "M":
        members = {
            name: picked
            for name, below in wanted.items()
            if name in value.value and (picked := _pick(value.value[name], below)) is not None
        }
        return DynamoType({"M": members}) if members else None
    if value.type == "L":
        elements = [
            picked
            for index in sorted(step for step in wanted if isinstance(step, int))
            if index < len(value.value)
            and (picked := _pick(value.value[index], wanted[index])) is not None
        ]
        return DynamoType({"L": elements}) if elements else None
    return None
