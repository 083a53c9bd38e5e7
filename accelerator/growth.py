"""How large one call or one expansion in a query can become, as far as its text tells.

DuckDB interrupts between chunks, never inside one scalar call and never in its binder: repeat of
1e9 runs for 10 s and more after its query was given up. What the text itself makes large is
refused here; what the data makes large is left to the memory limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from accelerator import gate_rules as rules
from accelerator.query_errors import QueryRejected

Node = dict[str, Any]

_TOO_LONG_NUMBER = Decimal("1e30")
# function: index of the argument that says how many characters or elements come out
_TEXT_SIZES = {"lpad": 1, "rpad": 1, "bitstring": 1, "to_base": 2}
_LIST_SIZES = {"list_resize": 1, "array_resize": 1}
_SERIES = frozenset({"range", "generate_series"})
_FORMATS = frozenset({"printf", "format"})
_UNITS_S = {
    "to_microseconds": 1e-6,
    "to_milliseconds": 1e-3,
    "to_seconds": 1.0,
    "to_minutes": 60.0,
    "to_hours": 3600.0,
}


class Sizes:
    """Bounds of one statement, gathered while the gate walks its tree."""

    def __init__(self, parameters: Sequence[Any] | Mapping[str, Any] | None) -> None:
        if isinstance(parameters, Mapping):
            self._parameters = {str(key): value for key, value in parameters.items()}
        else:
            self._parameters = {str(n): value for n, value in enumerate(parameters or (), 1)}
        self._repeats = 1
        self._longest = 1
        self._lists = 1

    def check(self) -> None:
        """Raises QueryRejected when sizes that are legal one by one could multiply."""
        if self._repeats * self._longest * self._lists > rules.MAX_VOLUME:
            raise QueryRejected("The sizes that the statement asks for multiply to a huge result.")

    # -- calls ----------------------------------------------------------------------------------

    def function(self, node: Node) -> None:
        """Raises QueryRejected for a scalar call whose result is huge, or cannot be foreseen."""
        name = str(node["function_name"]).lower()
        arguments = arguments_of(node)
        if name == "repeat":
            self._repeats *= max(1, self._bounded(name, arguments, 1, rules.MAX_TEXT_GROWTH))
        elif name in _TEXT_SIZES:
            size = self._bounded(name, arguments, _TEXT_SIZES[name], rules.MAX_TEXT_GROWTH)
            self._longest = max(self._longest, size)
        elif name in _LIST_SIZES:
            self._list(self._bounded(name, arguments, _LIST_SIZES[name], rules.MAX_LIST_GROWTH))
        elif name in _SERIES:
            self._series(name, arguments)
        elif name in _FORMATS and arguments:
            self._format(name, arguments[0])

    def _list(self, length: int) -> None:
        # Short lists are what people write side by side; only long ones multiply to trouble.
        if length > 1000:
            self._lists *= length

    def _bounded(self, name: str, arguments: list[Node], index: int, limit: int) -> int:
        if index >= len(arguments):
            return 0
        size = self._constant(arguments[index])
        if size is None:
            size = self._at_most(arguments[index])
        if size is None:
            raise QueryRejected(
                f"The size given to {name} is no constant, and one call cannot be interrupted.",
                hint=f"Write a number up to {limit}, or least(…, {limit}).",
            )
        if not -limit <= size <= limit:
            raise QueryRejected(f"The size given to {name} is beyond {limit}.")
        return int(abs(size))

    def _series(self, name: str, arguments: list[Node]) -> None:
        bounds = [self._constant(argument) for argument in arguments[:3]]
        if len(bounds) == 1:
            bounds.insert(0, Decimal(0))
        known = [b for b in bounds if b is not None]
        if len(known) < len(bounds):
            if any(abs(b) > 10**9 for b in known) or _is_fine_interval(arguments[2:3]):
                raise self._series_refused(name)
            return
        start, stop, step = [*known, Decimal(1)][:3]
        length = abs((stop - start) / step) if step else Decimal(0)
        if length > rules.MAX_LIST_GROWTH:
            raise self._series_refused(name)
        self._list(int(length))

    def _series_refused(self, name: str) -> QueryRejected:
        return QueryRejected(
            f"The list made by {name} has more than {rules.MAX_LIST_GROWTH} elements.",
            hint=f"Use it as a table, which has no such bound: FROM {name}(…).",
        )

    def _format(self, name: str, pattern: Node) -> None:
        text = _text_of(pattern)
        if text is None:
            raise QueryRejected(f"The pattern given to {name} is no constant text.")
        digits = max((len(run) for run in re.findall(r"\d+", text)), default=0)
        if digits > rules.MAX_FORMAT_DIGITS or "*" in text or re.search(r"\{[^}]*\{", text):
            raise QueryRejected(f"The pattern given to {name} asks for too wide a field.")

    # -- constants ------------------------------------------------------------------------------

    def _constant(self, node: Node) -> Decimal | None:
        """The value of an expression of constants; None when it depends on anything else."""
        match node.get("class"):
            case "CONSTANT":
                return _number_of(node)
            case "CAST":
                return self._constant(node["child"])
            case "PARAMETER":
                return _as_number(self._parameters.get(str(node.get("identifier"))))
            case "FUNCTION":
                return self._arithmetic(node)
            case _:
                return None

    def _arithmetic(self, node: Node) -> Decimal | None:
        operands = [self._constant(argument) for argument in arguments_of(node)]
        if any(operand is None for operand in operands):
            return None
        known = [operand for operand in operands if operand is not None]
        try:
            match (node["function_name"], known):
                case ("+", [a, b]):
                    result = a + b
                case ("-", [a, b]):
                    result = a - b
                case ("-", [a]):
                    result = -a
                case ("*" | "multiply", [a, b]):
                    result = a * b
                case ("/" | "//", [a, b]) if b:
                    result = a / b
                case ("^" | "**" | "pow" | "power", [a, b]):
                    result = a**b
                case ("%" | "mod", [a, b]) if b:
                    result = a % b
                case _:
                    return None
        except (InvalidOperation, ArithmeticError):
            return _TOO_LONG_NUMBER
        return result

    def _at_most(self, node: Node) -> Decimal | None:
        """An upper bound that is written as least(…, constant)."""
        if node.get("class") == "CAST":
            return self._at_most(node["child"])
        if node.get("class") != "FUNCTION" or str(node["function_name"]).lower() != "least":
            return None
        known = [c for c in map(self._constant, arguments_of(node)) if c is not None]
        return min(known) if known else None

    # -- what doubles in the binder --------------------------------------------------------------

    def expansion(self, query: Node) -> None:
        """Raises QueryRejected when aliases of one SELECT refer to one another too often.

        DuckDB replaces each alias by its expression, so `1 a, a+a b, b+b c, …` doubles each time.
        """
        select_list = query.get("select_list") or []
        if len(select_list) > rules.MAX_EXPRESSIONS:
            raise QueryRejected(
                f"The statement selects more than {rules.MAX_EXPRESSIONS} expressions."
            )
        weights: dict[str, int] = {}
        total = 0
        rest = [value for key, value in query.items() if key in _USES_ALIASES]
        for expression in [*select_list, rest]:
            weight = _weight(expression, weights)
            total += weight
            if total > rules.MAX_EXPANSION:
                raise QueryRejected("The aliases of the statement expand to a huge expression.")
            if isinstance(expression, dict) and expression.get("alias"):
                weights[str(expression["alias"]).lower()] = weight


_USES_ALIASES = frozenset({"where_clause", "group_expressions", "having", "qualify", "modifiers"})


def _weight(value: object, weights: Mapping[str, int]) -> int:
    """Nodes of an expression once the aliases in it are expanded."""
    if isinstance(value, list):
        return sum(_weight(item, weights) for item in value)
    if not isinstance(value, dict):
        return 0
    if value.get("class") == "COLUMN_REF":
        names = value.get("column_names") or [""]
        return weights.get(str(names[-1]).lower(), 1)
    own = 1 if "class" in value else 0
    return own + sum(_weight(child, weights) for child in value.values())


def arguments_of(node: Node) -> list[Node]:
    """The arguments of a call: `children` on 1.5.5, `arguments` on 2.0.1."""
    if "arguments" in node:
        return [argument["expression"] for argument in node["arguments"]]
    return list(node.get("children") or [])


def _number_of(node: Node) -> Decimal | None:
    literal = node.get("literal")
    if literal is not None:
        return _as_number(literal.get("text"))
    value = node.get("value") or {}
    raw = value.get("value")
    kind = value.get("type") or {}
    if isinstance(raw, dict):
        # HUGEINT as two halves.
        return Decimal(raw.get("upper", 0)) * 2**64 + Decimal(raw.get("lower", 0))
    number = _as_number(raw)
    if kind.get("id") == "DECIMAL" and number is not None:
        return number.scaleb(-int((kind.get("type_info") or {}).get("scale", 0)))
    return number


def _as_number(value: object) -> Decimal | None:
    if isinstance(value, bool):
        return Decimal(int(value))
    if isinstance(value, int | float | Decimal | str):
        try:
            number = Decimal(str(value).replace("_", "").strip())
        except InvalidOperation:
            return None
        return number if number.is_finite() else _TOO_LONG_NUMBER
    return None


def _text_of(node: Node) -> str | None:
    if node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal")
    if literal is not None:
        return str(literal.get("text", ""))
    raw = (node.get("value") or {}).get("value")
    return raw if isinstance(raw, str) else None


def _is_fine_interval(arguments: list[Node]) -> bool:
    """True for a constant step below one hour: over years it makes a huge list."""
    if not arguments:
        return False
    node = arguments[0]
    while node.get("class") == "CAST":
        node = node["child"]
    if node.get("class") == "FUNCTION":
        return str(node["function_name"]).lower() in (
            "to_microseconds",
            "to_milliseconds",
            "to_seconds",
        )
    text = (_text_of(node) or "").lower()
    return any(unit in text for unit in ("second", "micros", "millis", "us", "ms"))
