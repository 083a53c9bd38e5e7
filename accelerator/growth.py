"""How large one call or one expansion in a query can become, as far as its text tells.

DuckDB interrupts between chunks, never inside one scalar call and never in its binder: repeat of
1e9 runs for 10 s and more after its query was given up, and what a call builds on the way counts
against no memory limit. What the text itself makes large is refused here; what the data makes
large is left to the memory limit.

Two measures. Each call that takes a size has that size bounded. And the whole statement has a
volume, a bound of how much larger than its input a value in it can be: sizes multiply where calls
stand inside one another, `x || x` counts twice, and a subquery multiplies what is around it.
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
_TEXT_SIZES = {
    "repeat": 1,
    "lpad": 1,
    "rpad": 1,
    "bitstring": 1,
    "to_base": 2,
    "approx_top_k": 1,
}
_LIST_SIZES = {"list_resize": 1, "array_resize": 1, "equi_width_bins": 2}
_SERIES = frozenset({"range", "generate_series"})
_FORMATS = frozenset({"printf", "format"})
_REPLACES = frozenset({"replace", "regexp_replace"})
# Each turns one character into up to so many.
_ENCODERS = {
    "bin": 8,
    "hex": 2,
    "json_quote": 6,
    "regexp_escape": 2,
    "to_base64": 2,
    "to_binary": 8,
    "to_hex": 2,
    "to_json": 6,
    "url_encode": 3,
}
# What these give is as long as all they are given, together.
_JOINERS = frozenset(
    {
        "||",
        "array_append",
        "array_cat",
        "array_concat",
        "array_prepend",
        "array_value",
        "concat",
        "concat_ws",
        "format",
        "json_array",
        "json_deep_merge",
        "json_merge_patch",
        "json_object",
        "list_append",
        "list_cat",
        "list_concat",
        "list_pack",
        "list_prepend",
        "list_value",
        "list_zip",
        "map",
        "map_concat",
        "printf",
        "row",
        "struct_concat",
        "struct_insert",
        "struct_pack",
        "struct_update",
    }
)
_PATTERNS = {
    "~~": "%",
    "!~~": "%",
    "~~*": "%",
    "!~~*": "%",
    "like_escape": "%",
    "not_like_escape": "%",
    "ilike_escape": "%",
    "not_ilike_escape": "%",
    "~~~": "*",
}


class Sizes:
    """Bounds of one statement, gathered while the gate walks its tree.

    `patterns_run_away`: this DuckDB matches LIKE and GLOB in a time that is a power of the number
    of wildcards (1.5 does).
    """

    def __init__(
        self, parameters: Sequence[Any] | Mapping[str, Any] | None, *, patterns_run_away: bool
    ) -> None:
        if isinstance(parameters, Mapping):
            self._parameters = {str(key): value for key, value in parameters.items()}
        else:
            self._parameters = {str(n): value for n, value in enumerate(parameters or (), 1)}
        self._patterns_run_away = patterns_run_away
        self.saw_parameters = False
        """Whether a parameter was looked at, so that another value may be judged otherwise."""
        # By identity of the call's node, which lives as long as the tree.
        self._factors: dict[int, int] = {}

    def check(self, tree: Node) -> None:
        """Raises QueryRejected when sizes that are legal one by one multiply beyond bounds."""
        self._volume(tree)

    # -- calls ----------------------------------------------------------------------------------

    def function(self, node: Node) -> None:
        """Raises QueryRejected for a scalar call whose result is huge, or cannot be foreseen."""
        name = str(node["function_name"]).lower()
        arguments = arguments_of(node)
        if name in _TEXT_SIZES:
            self._bounded(node, arguments, _TEXT_SIZES[name], rules.MAX_TEXT_GROWTH)
        elif name in _LIST_SIZES:
            self._bounded(node, arguments, _LIST_SIZES[name], rules.MAX_LIST_GROWTH)
        elif name in _SERIES:
            self._series(node, arguments)
        elif name in _FORMATS and arguments:
            self._format(name, arguments[0])
        elif name in _REPLACES and len(arguments) >= 3:
            self._factors[id(node)] = self._length(arguments[2])
        elif name in _ENCODERS:
            self._factors[id(node)] = _ENCODERS[name]
        elif name in _PATTERNS and len(arguments) >= 2:
            self._pattern(_PATTERNS[name], arguments[1])

    def _bounded(self, node: Node, arguments: list[Node], index: int, limit: int) -> None:
        name = node["function_name"]
        if index >= len(arguments):
            return
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
        self._factors[id(node)] = max(1, int(abs(size)))

    def _series(self, node: Node, arguments: list[Node]) -> None:
        bounds = [self._constant(argument) for argument in arguments[:3]]
        if len(bounds) == 1:
            bounds.insert(0, Decimal(0))
        known = [b for b in bounds if b is not None]
        if len(known) < len(bounds) or len(known) < 2:
            if any(abs(b) > 10**9 for b in known) or _is_fine_interval(arguments[2:3]):
                raise self._series_refused(node)
            return
        start, stop, step = [*known, Decimal(1)][:3]
        length = abs((stop - start) / step) if step else Decimal(0)
        if length > rules.MAX_LIST_GROWTH:
            raise self._series_refused(node)
        self._factors[id(node)] = max(1, int(length))

    @staticmethod
    def _series_refused(node: Node) -> QueryRejected:
        name = node["function_name"]
        return QueryRejected(
            f"The list made by {name} has more than {rules.MAX_LIST_GROWTH} elements.",
            hint=f"Use it as a table, which has no such bound: FROM {name}(…).",
        )

    def _format(self, name: str, pattern: Node) -> None:
        text = self._text(pattern)
        if text is None:
            raise QueryRejected(f"The pattern given to {name} is no constant text.")
        digits = max((len(run) for run in re.findall(r"\d+", text)), default=0)
        if digits > rules.MAX_FORMAT_DIGITS or "*" in text or re.search(r"\{[^}]*\{", text):
            raise QueryRejected(f"The pattern given to {name} asks for too wide a field.")

    def _pattern(self, wildcard: str, pattern: Node) -> None:
        """On 1.5 `%_a%_a%_a%_b` on 3,000 characters runs for minutes, deaf to interrupts."""
        if not self._patterns_run_away:
            return
        text = self._text(pattern)
        if text is None:
            raise QueryRejected(
                "A LIKE or GLOB whose pattern is no constant cannot be interrupted.",
                hint="Use regexp_matches, contains, starts_with or ends_with.",
            )
        is_simple = wildcard == "%" and "_" not in text
        if not is_simple and text.count(wildcard) > rules.MAX_WILDCARDS:
            raise QueryRejected(
                f"The pattern has more than {rules.MAX_WILDCARDS} wildcards {wildcard!r}.",
                hint="Use regexp_matches.",
            )

    # -- the volume -----------------------------------------------------------------------------

    def _volume(self, value: object) -> int:
        """How much larger than the input a value in this part of the tree can be."""
        if isinstance(value, list):
            return max((self._volume(item) for item in value), default=1)
        if not isinstance(value, dict):
            return 1
        if value.get("class") == "CONSTANT" or value.get("class") == "PARAMETER":
            return max(1, self._length(value) // rules.VOLUME_UNIT)
        if "function_name" in value:
            volume = self._of_call(value)
        elif "cte_map" in value:
            volume = self._of_query(value)
        elif value.get("type") == "JOIN":
            volume = self._volume(value.get("left")) * self._volume(value.get("right"))
        else:
            volume = max((self._volume(child) for child in value.values()), default=1)
        if volume > rules.MAX_VOLUME:
            raise QueryRejected("The sizes that the statement asks for multiply to a huge result.")
        return volume

    def _of_query(self, node: Node) -> int:
        """What CTEs and FROM build, SELECT and WHERE can take in and enlarge again."""
        volume = self._volume(node.get("from_table"))
        for entry in (node["cte_map"] or {}).get("map", ()):
            volume *= self._volume(entry)
        rest = [v for key, v in node.items() if key not in ("cte_map", "from_table")]
        return volume * self._volume(rest)

    def _of_call(self, node: Node) -> int:
        name = str(node["function_name"]).lower()
        parts = [self._volume(argument) for argument in arguments_of(node)]
        if node.get("is_operator") and name not in _JOINERS:
            # A number or a truth value, however large what it was made of.
            return 1
        if name in _JOINERS:
            return max(1, sum(parts))
        volume = self._factors.get(id(node), 1)
        for part in parts:
            volume *= part
        return volume

    # -- constants ------------------------------------------------------------------------------

    def _constant(self, node: Node) -> Decimal | None:
        """The value of an expression of constants; None when it depends on anything else."""
        match node.get("class"):
            case "CONSTANT":
                return _number_of(node)
            case "CAST":
                return self._constant(node["child"])
            case "PARAMETER":
                return _as_number(self._given(node, None))
            case "FUNCTION":
                return self._arithmetic(node)
            case _:
                return None

    def _given(self, parameter: Node, otherwise: object) -> Any:
        self.saw_parameters = True
        return self._parameters.get(str(parameter.get("identifier")), otherwise)

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

    def _text(self, node: Node) -> str | None:
        """The text of a constant or a parameter, empty for NULL; None for anything else."""
        while node.get("class") == "CAST":
            node = node["child"]
        if node.get("class") == "PARAMETER":
            value = self._given(node, 0)
            return "" if value is None else value if isinstance(value, str) else None
        if node.get("class") != "CONSTANT":
            return None
        literal = node.get("literal")
        if literal is not None:
            return str(literal.get("text", ""))
        constant = node.get("value") or {}
        raw = "" if constant.get("is_null") else constant.get("value")
        return raw if isinstance(raw, str) else None

    def _length(self, node: Node) -> int:
        """Characters of a constant text, 1 for what is none."""
        return max(1, len(self._text(node) or ""))

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


def _is_fine_interval(arguments: list[Node]) -> bool:
    """True for a constant step below a minute: over years it makes a huge list."""
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
    literal = node.get("literal") or node.get("value") or {}
    text = str(literal.get("text") or literal.get("value") or "").lower()
    return any(unit in text for unit in ("second", "micros", "millis", "us", "ms"))
