"""A YAML file as values that know their line.

Owns reading, syntax and duplicate keys. Knows no setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from connector.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Located:
    """A value and where it stands. Mappings and lists hold `Located` in turn."""

    value: Any
    place: str

    def plain(self) -> Any:
        """The value without the places."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        return self.value

    def entries(self) -> Iterator[tuple[str, Located]]:
        """Key and value of a mapping; nothing for an empty one, `None` included."""
        yield from (self.value or {}).items()


def read_file(path: Path) -> Located:
    """The file's one document; an empty file is an empty mapping.

    Raises: ConfigError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no configuration file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error}.") from error
    tree = parse(text, path.name, numbered=True)
    if not isinstance(tree.value, dict):
        raise ConfigError(
            f"{path} holds no settings by name.", hint="It starts with `datasets:` or `runtime:`."
        )
    return tree


def parse(text: str, source: str, *, numbered: bool) -> Located:
    """The value of a YAML text; places are `source`, with the line where `numbered`.

    Raises: ConfigError.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return Located({}, source)
        return _Reader(loader, source, numbered).located(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise ConfigError(f"{place} is not YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not YAML: {error}.") from error
    finally:
        loader.dispose()


class _Reader:
    def __init__(self, loader: yaml.SafeLoader, source: str, numbered: bool) -> None:
        self._loader = loader
        self._source = source
        self._numbered = numbered

    def located(self, node: yaml.Node, above: tuple[yaml.Node, ...]) -> Located:
        place = self._place(node)
        if node in above:
            raise ConfigError(f"{place} contains itself.")
        inside = (*above, node)
        if isinstance(node, yaml.MappingNode):
            return Located(self._mapping(node, inside), place)
        if isinstance(node, yaml.SequenceNode):
            return Located([self.located(entry, inside) for entry in node.value], place)
        return Located(self._loader.construct_object(node), place)

    def _mapping(self, node: yaml.MappingNode, inside: tuple[yaml.Node, ...]) -> dict[str, Located]:
        own = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{self._place(key)}: a key is not a text.")
            if key.value in own:
                raise ConfigError(f"{self._place(key)}: {key.value} is there a second time.")
            own.add(key.value)
        # Puts what `<<` brings in front, so that the mapping's own keys win below.
        self._loader.flatten_mapping(node)
        return {key.value: self.located(value, inside) for key, value in node.value}

    def _place(self, node: yaml.Node) -> str:
        return f"{self._source}:{node.start_mark.line + 1}" if self._numbered else self._source
