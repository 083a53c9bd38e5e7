"""From what was written to values: references, kinds, defaults, and where each came from.

Knows neither precedence nor what a dataset is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from connector.config.interpolation import Interpolation, masked
from connector.config.layers import Block, Given, Origin, Source
from connector.config.settings import Setting
from connector.errors import ConfigError

_DEFAULT = Origin(Source.DEFAULT, "default")
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One line of `config show`; secrets are masked already."""

    path: str
    value: str
    origin: Origin


WRONG = object()


class Reader:
    """Turns what was written into values, and keeps their origins, warnings and problems."""

    def __init__(self, env: Mapping[str, str], problems: list[ConfigError]) -> None:
        self.interpolation = Interpolation(env, ())
        self.origins: dict[str, Origin] = {}
        self.shown: dict[str, ShownSetting] = {}
        self.warnings: list[str] = []
        self.secrets: set[str] = set()
        self.problems = problems

    def values(self, path: str, settings: Iterable[Setting], block: Block) -> dict[str, Any]:
        """By the setting's key; what was not given, or wrongly, has its default."""
        values: dict[str, Any] = {}
        for setting in settings:
            given = block.get(setting.key)
            value = self.value(path, given) if given else WRONG
            if value is WRONG:
                value = None if setting.default is None else setting.kind.read(setting.default)
            values[setting.key] = value
            self.record(path, setting, value, given.origin if given else _DEFAULT)
        return values

    def value(self, path: str, given: Given) -> Any:
        """The value of one setting, or `_WRONG`, which is noted."""
        shown = f"{path}.{given.setting.key}"
        self._warn_of_alias(path, given)
        try:
            return self.parsed(given)
        except ConfigError as error:
            message = f"{shown} ({given.origin}): {error.message}"
            self.problems.append(ConfigError(message, hint=error.hint))
        except ValueError:
            message = (
                f"{shown} is {_as_written(given)} ({given.origin}); "
                f"{given.setting.kind.wanted} is wanted."
            )
            self.problems.append(ConfigError(message))
        return WRONG

    def parsed(self, given: Given) -> Any:
        """Raises: ConfigError for a reference, ValueError for a value."""
        raw = self.interpolation.applied(given.value)
        if given.alias is not None and isinstance(raw, str):
            raw = given.alias.values.get(raw.strip().lower(), raw)
        kind = given.setting.kind
        return kind.read(raw) if given.is_text else kind.parse(raw)

    def record(self, path: str, setting: Setting, value: Any, origin: Origin) -> None:
        """Notes a value for `config show`."""
        shown = f"{path}.{setting.key}"
        if setting.is_secret and value is not None:
            self.secrets.add(value.reveal())
        text = masked(setting.kind.show(value), self.interpolation.secret_texts)
        self.origins[shown] = origin
        self.shown[shown] = ShownSetting(shown, text, origin)

    def derive(self, shown: str, text: str, follows: str) -> None:
        """Notes a value that nobody wrote and that follows from something else."""
        origin = Origin(Source.DERIVED, follows)
        self.origins[shown] = origin
        text = masked(text, self.interpolation.secret_texts)
        self.shown[shown] = ShownSetting(shown, text, origin)

    def _warn_of_alias(self, path: str, given: Given) -> None:
        if given.alias is not None and given.alias.is_deprecated:
            instead = f"{path}.{given.setting.key}"
            meant = given.alias.values.get(str(given.value).strip().lower())
            instead += f": {meant}" if meant else ""
            self.warnings.append(
                f"{path}.{given.alias.key} ({given.origin}) is deprecated; say {instead}."
            )


def _as_written(given: Given) -> str:
    if given.setting.is_secret:
        return "***"
    text = json.dumps(given.value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def merged(blocks: Iterable[Block]) -> Block:
    """Later blocks win."""
    merged: Block = {}
    for block in blocks:
        merged |= block
    return merged


def attributes(
    settings: Iterable[Setting], values: Mapping[str, Any], sections: Mapping[str, type]
) -> dict[str, Any]:
    """Keyword arguments of the settings' class, its sections built."""
    flat: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {name: {} for name in sections}
    for setting in settings:
        *section, attribute = setting.attribute
        (nested[section[0]] if section else flat)[attribute] = values[setting.key]
    return flat | {name: sections[name](**nested[name]) for name in sections}
