"""Kinds of setting: what a value may look like, in YAML and as text, and what it becomes.

Owns parsing of one value, the words for what is wanted, its JSON Schema and how it is shown.
Knows no setting by name, no file and no precedence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from connector.config.durations import format_duration, format_size, parse_duration, parse_size

Schema = Mapping[str, Any]


class Secret:
    """A text that never shows itself; `reveal` is the only way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the server's certificate chain and its private key."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ColumnPin:
    """An attribute whose column type the user fixed; `type` is DuckDB's name for it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    wanted      completes "... is wanted", for errors
    parse       of a YAML value or of the text of a variable or flag; raises ValueError
    show        a parsed value as a person would write it
    is_nested   the text of a variable or flag is YAML
    """

    label: str
    wanted: str
    parse: Callable[[Any], Any]
    schema: Schema
    show: Callable[[Any], str] = str
    is_nested: bool = False

    def read(self, text: str) -> Any:
        """What `parse` returns for the text of a variable, a flag or a default.

        Raises: ValueError.
        """
        if not self.is_nested or not text.lstrip().startswith(("[", "{")):
            return self.parse(text)
        try:
            return self.parse(yaml.safe_load(text))
        except yaml.YAMLError as error:
            raise ValueError("not YAML") from error


def _text(value: Any) -> str:
    # YAML reads a bare 12 or 1.5 as a number where a name was meant; yes and no stay suspicious.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a text")
    return value.strip()


TEXT = Kind("text", "a text", _text, {"type": "string", "minLength": 1})
PATH = Kind("path", "a path", lambda value: Path(_text(value)), TEXT.schema)
SECRET = Kind(
    "secret",
    "a text, best by ${secrets:NAME}",
    lambda value: Secret(_text(value)),
    {"type": ["string", "number"]},
)


def matching(label: str, wanted: str, pattern: str) -> Kind:
    """A text that a pattern matches as a whole."""
    compiled = re.compile(pattern, re.ASCII)

    def parse(value: Any) -> str:
        text = _text(value)
        if not compiled.fullmatch(text):
            raise ValueError("no match")
        return text

    return Kind(label, wanted, parse, {"type": "string", "pattern": f"^(?:{pattern})$"})


def _url(value: Any) -> str:
    text = _text(value)
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("no host")
    if parts.username or parts.password:
        raise ValueError("credentials in it")
    _ = parts.port  # raises ValueError when it is no port
    return text.rstrip("/")


URL = Kind(
    "URL",
    "an http or https URL without credentials",
    _url,
    {"type": "string", "pattern": "^https?://"},
)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "yes": True, "on": True, "1": True}
    known |= {"false": False, "no": False, "off": False, "0": False}
    try:
        return known[str(value).strip().lower()]
    except KeyError:
        raise ValueError("neither true nor false") from None


BOOLEAN = Kind(
    "true or false",
    "true or false",
    _flag,
    {"type": "boolean"},
    lambda value: "true" if value else "false",
)


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("not a number")
    if isinstance(value, int):
        return value
    text = _text(value)
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise ValueError("not a whole number")
    return int(text)


def whole(least: int, most: int | None = None) -> Kind:
    """A whole number within bounds, both included."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(value: Any) -> int:
        number = _whole(value)
        if number < least or (most is not None and number > most):
            raise ValueError("out of bounds")
        return number

    schema: dict[str, Any] = {"type": "integer", "minimum": least}
    if most is not None:
        schema["maximum"] = most
    return Kind("number", f"a whole number {bounds}", parse, schema)


def duration(least_s: float = 0.0, because: str = "") -> Kind:
    """A duration in seconds; `because` says why it has a least value."""
    wanted = "a duration such as 0s, 250ms, 2s, 10m or 18h"
    if least_s:
        wanted = f"a duration of at least {format_duration(least_s)}"
        wanted += f" ({because})" if because else ""

    def parse(value: Any) -> float:
        if not isinstance(value, str):
            raise ValueError("no unit")
        seconds = parse_duration(value)
        if seconds < least_s:
            raise ValueError("too short")
        return seconds

    schema = {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+\s*$"}
    return Kind("duration", wanted, parse, schema, format_duration)


def size(least_bytes: int) -> Kind:
    """A number of bytes."""

    def parse(value: Any) -> int:
        size_bytes = parse_size(_text(value))
        if size_bytes < least_bytes:
            raise ValueError("too small")
        return size_bytes

    wanted = f"a size of at least {format_size(least_bytes)} such as 400MB, 1GB or 512MiB"
    schema = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)? ?([KMGTkmgt]i?)?[Bb]\s*$"}
    return Kind("size", wanted, parse, schema, format_size)


def choice(options: type[StrEnum], also: Mapping[str, str] | None = None) -> Kind:
    """One word of an enum, in any case; `also` maps further words to those of the enum."""
    words = {option.value: option for option in options}
    words |= {word: options(meant) for word, meant in (also or {}).items()}

    def parse(value: Any) -> StrEnum:
        # YAML 1.1 reads a bare `off` as false; no word of ours is a yes.
        text = "off" if value is False else _text(value)
        try:
            return words[text.lower()]
        except KeyError:
            raise ValueError("not one of them") from None

    listed = [option.value for option in options]
    label = ", ".join(listed)
    wanted = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"
    return Kind(label, wanted, parse, {"enum": sorted(words)}, lambda value: str(value.value))


def optional(kind: Kind, word: str = "none") -> Kind:
    """Another kind, or a word that stands for None."""

    def parse(value: Any) -> Any:
        if value is False and word == "off":
            return None
        if isinstance(value, str) and value.strip().lower() == word:
            return None
        return kind.parse(value)

    stand_ins: list[Any] = [word, False] if word == "off" else [word]
    return Kind(
        f"{kind.label} or {word}",
        f"{kind.wanted}, or {word},",
        parse,
        {"anyOf": [{"enum": stand_ins}, kind.schema]},
        lambda value: word if value is None else kind.show(value),
        kind.is_nested,
    )


def listing(element: Kind, plural: str) -> Kind:
    """A list without repetitions; as text, YAML's `[a, b]` or `a,b`."""

    def parse(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = [part for part in value.split(",") if part.strip()]
        if not isinstance(value, Sequence):
            raise ValueError("not a list")
        elements = tuple(element.parse(part) for part in value)
        if len(set(elements)) != len(elements):
            raise ValueError("one is there twice")
        return elements

    return Kind(
        f"list of {plural}",
        f"a list of {plural}",
        parse,
        {"type": "array", "items": element.schema, "uniqueItems": True},
        lambda value: f"[{', '.join(element.show(part) for part in value)}]",
        is_nested=True,
    )


# What Spice keeps per column and a replica has no use for.
_COLUMN_WORDS_OF_SPICE = {"description", "embeddings", "full_text_search", "metadata", "nullable"}


def _column_pins(value: Any) -> tuple[ColumnPin, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError("not a list")
    pins = []
    for entry in value:
        if not isinstance(entry, Mapping) or set(entry) - {"name", "type"} - _COLUMN_WORDS_OF_SPICE:
            raise ValueError("not a column")
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError("a column without a name")
        if "type" in entry:
            pins.append(ColumnPin(name, _type_name(entry["type"])))
    if len({pin.name for pin in pins}) != len(pins):
        raise ValueError("one is there twice")
    return tuple(pins)


def _type_name(value: Any) -> str:
    text = _text(value)
    # Fields of a STRUCT are names of attributes, whose case counts.
    return text if "STRUCT" in text.upper() else text.upper()


COLUMN_PINS = Kind(
    "list of columns",
    "a list of columns such as [{name: total, type: DOUBLE}], each name once,",
    _column_pins,
    {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": TEXT.schema, "type": TEXT.schema}
            | {word: {} for word in sorted(_COLUMN_WORDS_OF_SPICE)},
            "additionalProperties": False,
        },
    },
    lambda pins: f"[{', '.join(f'{{name: {pin.name}, type: {pin.type}}}' for pin in pins)}]",
    is_nested=True,
)


def _tls_files(value: Any) -> TlsFiles:
    if not isinstance(value, Mapping) or set(value) != {"cert", "key"}:
        raise ValueError("not both files")
    return TlsFiles(Path(_text(value["cert"])), Path(_text(value["key"])))


TLS_FILES = Kind(
    "{cert: FILE, key: FILE}",
    "{cert: FILE, key: FILE}",
    _tls_files,
    {
        "type": "object",
        "required": ["cert", "key"],
        "properties": {"cert": TEXT.schema, "key": TEXT.schema},
        "additionalProperties": False,
    },
    lambda files: f"{{cert: {files.cert}, key: {files.key}}}",
    is_nested=True,
)
