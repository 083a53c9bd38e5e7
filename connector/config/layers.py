"""What one source of settings says: the file, the environment or the flags, each as a `Layer`.

Owns keys and names: which setting a YAML key, a variable or a flag means, what is unknown and what
it is nearest to. Must not know precedence, references or whether a value is any good.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache
from typing import Any

from connector.config import spice
from connector.config.settings import (
    SOURCE_PREFIX,
    Alias,
    Setting,
    dataset_settings,
    runtime_settings,
)
from connector.config.yaml_file import Located, parse
from connector.errors import ConfigError

PREFIX = "DYNADUCK_"
# Read by the command line, by tests or by nobody, but no settings of the configuration.
RESERVED_VARIABLES = frozenset({"DYNADUCK_CONFIG", "DYNADUCK_URL", "DYNADUCK_FAILPOINT"})
# Kubernetes sets these in every pod beside a Service that is called dynaduck.
_OF_KUBERNETES = re.compile(
    r"DYNADUCK_SERVICE_(?:HOST|PORT)(?:_.*)?|DYNADUCK_PORT_\d+_(?:TCP|UDP)(?:_.*)?"
)


class Source(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: `place` is file:line, a variable, a flag, or what it follows."""

    source: Source
    place: str

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written. `is_text` where it is the text of a variable or a flag."""

    setting: Setting
    value: Any
    origin: Origin
    is_text: bool
    alias: Alias | None = None


Block = dict[str, Given]
"""What was said, by the setting's key."""


@dataclass(slots=True)
class Layer:
    """What one source says.

    datasets        in order; the reference is what a variable or flag called the dataset
    every_dataset   settings of datasets that name none
    tables          the shortcut: tables that become datasets by themselves
    """

    runtime: Block = field(default_factory=dict)
    datasets: list[tuple[str | None, Block]] = field(default_factory=list)
    every_dataset: Block = field(default_factory=dict)
    tables: list[tuple[str, Origin]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[ConfigError] = field(default_factory=list)


# ---- YAML keys


@cache
def _accepted_keys(of_dataset: bool) -> Mapping[str, tuple[Setting, Alias | None]]:
    """Every key that a setting may have in a file, for a dataset or for the runtime."""
    keys: dict[str, tuple[Setting, Alias | None]] = {}
    for setting in dataset_settings() if of_dataset else runtime_settings():
        for key, alias in [(setting.key, None), *((a.key, a) for a in setting.aliases)]:
            keys[key] = (setting, alias)
            section, _, name = key.rpartition(".")
            if section == "params":
                other = (
                    name.removeprefix("dynamodb_") if "dynamodb_" in name else f"dynamodb_{name}"
                )
                keys.setdefault(f"params.{other}", (setting, alias))
    return keys


@cache
def _sections(of_dataset: bool) -> frozenset[str]:
    return frozenset(key.rpartition(".")[0] for key in _accepted_keys(of_dataset)) - {""}


def from_file(tree: Located) -> Layer:
    """The layer of a file, ours or a spicepod."""
    layer = Layer()
    is_spicepod = spice.is_spicepod(tree)
    for key, entry in tree.entries():
        if key == "datasets":
            _read_datasets(layer, entry, Source.FILE, is_spicepod=is_spicepod)
        elif key in {"runtime", "skippr"}:
            _read_block(layer, layer.runtime, entry, "runtime", Source.FILE, tolerant=is_spicepod)
        elif is_spicepod and key in spice.SILENT_TOP_LEVEL:
            continue
        elif is_spicepod:
            layer.warnings.append(spice.ignored(key, entry.place))
        else:
            layer.problems.append(_unknown_key(key, "", entry.place))
    return layer


def _read_datasets(layer: Layer, entry: Located, source: Source, *, is_spicepod: bool) -> None:
    if not isinstance(entry.value, list):
        if entry.value is not None:
            layer.problems.append(
                ConfigError(
                    f"datasets ({entry.place}) is no list.",
                    hint="Each dataset starts with `- from: dynamodb:TABLE`.",
                )
            )
        return
    for index, dataset in enumerate(entry.value):
        path = f"datasets[{index}]"
        if not isinstance(dataset.value, dict):
            layer.problems.append(ConfigError(f"{path} ({dataset.place}) is no dataset."))
            continue
        table = dataset.value.get("from")
        text = table.value if table else None
        if is_spicepod and isinstance(text, str) and not _may_be_dynamodb(text):
            layer.warnings.append(
                f"{path} ({dataset.place}) reads from {text}, not from DynamoDB; it is ignored."
            )
            continue
        block: Block = {}
        _read_block(layer, block, dataset, path, source)
        layer.datasets.append((None, block))


def _may_be_dynamodb(text: str) -> bool:
    return re.match(rf"\s*(?:{SOURCE_PREFIX}|arn:|\$\{{)", text) is not None


def _read_block(
    layer: Layer, block: Block, entry: Located, path: str, source: Source, *, tolerant: bool = False
) -> None:
    """Puts what a mapping says into the block; `tolerant` only warns of keys it does not know."""
    of_dataset = path != "runtime"
    accepted = _accepted_keys(of_dataset)

    def read(section: Located, prefix: str) -> None:
        for name, child in section.entries():
            key = f"{prefix}{name}"
            shown = f"{path}.{key}"
            if key in accepted:
                setting, alias = accepted[key]
                if child.value is None:
                    continue
                origin = Origin(source, child.place)
                if setting.key in block:
                    first = block[setting.key].origin
                    layer.problems.append(
                        ConfigError(f"{shown} ({origin}) sets again what {first} has set.")
                    )
                block[setting.key] = Given(setting, child.plain(), origin, False, alias)
            elif key in _sections(of_dataset):
                if child.value is not None and not isinstance(child.value, dict):
                    layer.problems.append(
                        ConfigError(f"{shown} ({child.place}) is no value, it holds settings.")
                    )
                    continue
                read(child, f"{key}.")
            elif tolerant or (of_dataset and key in spice.IGNORED_DATASET_KEYS):
                layer.warnings.append(spice.ignored(shown, child.place))
            else:
                layer.problems.append(_unknown_key(key, path, child.place))

    if entry.value is None:
        return
    if not isinstance(entry.value, dict):
        layer.problems.append(
            ConfigError(f"{path} ({entry.place}) is no value, it holds settings.")
        )
        return
    read(entry, "")


def _unknown_key(key: str, path: str, place: str) -> ConfigError:
    of_dataset = path.startswith("datasets")
    if path:
        known = {candidate: f"{path}.{candidate}" for candidate in _accepted_keys(of_dataset)}
        known |= {section: f"{path}.{section}" for section in _sections(of_dataset)}
    else:
        known = {"datasets": "datasets", "runtime": "runtime"}
        known |= {
            f"runtime.{setting.key}": f"runtime.{setting.key}" for setting in runtime_settings()
        }
        known |= {setting.key: f"datasets[].{setting.key}" for setting in dataset_settings()}
    shown = f"{path}.{key}" if path else key
    return ConfigError(
        f"{shown} ({place}) is not a setting.",
        hint=f"The nearest is {known[_nearest(key, known)]}.",
    )


def _nearest(wanted: str, known: Mapping[str, Any]) -> str:
    """The known key most like the wanted one, in its last word or as a whole."""

    def likeness(candidate: str) -> tuple[float, float]:
        last = SequenceMatcher(
            None, wanted.rpartition(".")[2], candidate.rpartition(".")[2]
        ).ratio()
        return max(last, 0.0), SequenceMatcher(None, wanted, candidate).ratio()

    return max(sorted(known), key=likeness)


# ---- names of variables and flags


def plain_name(name: str) -> str:
    """Dots, dashes and underscores are one: `--http.port`, `--http-port`, DYNADUCK_HTTP__PORT."""
    return re.sub(r"[-._]+", "_", name).strip("_").lower()


Meaning = tuple[bool, Setting, Alias | None]


@cache
def _names() -> Mapping[str, tuple[Meaning, ...]]:
    """Which settings a name may mean: its path, or the end of it, without leading sections."""
    meanings: dict[str, dict[tuple[bool, str], Meaning]] = defaultdict(dict)
    for of_dataset in (True, False):
        for key, (setting, alias) in _accepted_keys(of_dataset).items():
            if setting.key in {"from", "name"}:
                continue
            words = key.split(".") if of_dataset else ["runtime", *key.split(".")]
            for start in range(len(words)):
                name = plain_name("_".join(words[start:]))
                meanings[name][of_dataset, setting.key] = (of_dataset, setting, alias)
    return {name: tuple(found.values()) for name, found in meanings.items()}


@cache
def _dataset_names() -> Mapping[str, tuple[Setting, Alias | None]]:
    """As `_names`, for a name that already says which dataset: `from` and `name` count too."""
    names: dict[str, tuple[Setting, Alias | None]] = {}
    for key, found in _accepted_keys(True).items():
        words = key.split(".")
        for start in range(len(words)):
            names.setdefault(plain_name("_".join(words[start:])), found)
    return names


def from_environment(env: Mapping[str, str]) -> Layer:
    """The layer of the variables; an empty variable says nothing."""
    layer = Layer()
    for variable, setting in _foreign_variables():
        if text := env.get(variable, "").strip():
            origin = Origin(Source.ENVIRONMENT, variable)
            layer.runtime.setdefault(setting.key, Given(setting, text, origin, True))
    for variable in sorted(env):
        name, text = variable.removeprefix(PREFIX), env[variable].strip()
        if not variable.startswith(PREFIX) or not text or variable in RESERVED_VARIABLES:
            continue
        if _OF_KUBERNETES.fullmatch(variable) or (name == "PORT" and "://" in text):
            continue
        origin = Origin(Source.ENVIRONMENT, variable)
        if name in {"TABLE", "TABLES"}:
            layer.tables += [(table.strip(), origin) for table in text.split(",") if table.strip()]
        elif name == "DATASETS":
            tree = parse(text, variable, numbered=False)
            _read_datasets(layer, tree, Source.ENVIRONMENT, is_spicepod=False)
        else:
            _put_named(layer, name.replace("__", "."), text, origin)
    return layer


def _foreign_variables() -> Iterator[tuple[str, Setting]]:
    """Names of another product that mean a setting of ours; ours win."""
    for setting in runtime_settings():
        for variable in setting.environment:
            yield variable, setting


def from_flags(flags: Mapping[str, object]) -> Layer:
    """The layer of the flags; names as typed, with or without the dashes. None says nothing."""
    layer = Layer()
    for flag, value in flags.items():
        name = flag.lstrip("-")
        origin = Origin(Source.FLAG, f"--{name}")
        if value is None:
            continue
        if plain_name(name) in {"table", "tables"}:
            tables = value if isinstance(value, list | tuple) else [value]
            layer.tables += [(str(table), origin) for table in tables]
        else:
            _put_named(layer, name, value, origin)
    return layer


def _put_named(layer: Layer, name: str, value: object, origin: Origin) -> None:
    words = [word for word in name.lower().split(".") if word]
    if len(words) > 2 and words[0] == "datasets":
        # The shortest reference leaves the longest known name, so a table's dots are its own.
        for split in range(2, len(words)):
            setting_name = plain_name("_".join(words[split:]))
            if setting_name in _dataset_names():
                setting, alias = _dataset_names()[setting_name]
                given = Given(setting, value, origin, isinstance(value, str), alias)
                _block_of(layer, ".".join(words[1:split]))[setting.key] = given
                return
        layer.problems.append(_unknown_name(name, origin))
        return
    found = _names().get(plain_name(name), ())
    if not found:
        layer.problems.append(_unknown_name(name, origin))
        return
    if len(found) > 1:
        paths = sorted(_full_path(meaning) for meaning in found)
        layer.problems.append(
            ConfigError(f"{origin} may mean {' or '.join(paths)}.", hint="Say more of the path.")
        )
        return
    of_dataset, setting, alias = found[0]
    block = layer.every_dataset if of_dataset else layer.runtime
    given = Given(setting, value, origin, isinstance(value, str), alias)
    earlier = block.get(setting.key)
    if earlier is not None and earlier.origin.place not in setting.environment:
        layer.problems.append(ConfigError(f"{origin} sets again what {earlier.origin} has set."))
    block[setting.key] = given


def _block_of(layer: Layer, reference: str) -> Block:
    for known, block in layer.datasets:
        if known == reference:
            return block
    layer.datasets.append((reference, {}))
    return layer.datasets[-1][1]


def _full_path(meaning: Meaning) -> str:
    of_dataset, setting, _ = meaning
    return f"datasets[].{setting.key}" if of_dataset else f"runtime.{setting.key}"


def _unknown_name(name: str, origin: Origin) -> ConfigError:
    words = plain_name(name)
    known = _names()
    if name.startswith("datasets."):
        words = plain_name(name.rpartition(".")[2])
        known = {key: ((True, *found),) for key, found in _dataset_names().items()}
    nearest = max(
        sorted(known), key=lambda candidate: SequenceMatcher(None, words, candidate).ratio()
    )
    if origin.source is Source.ENVIRONMENT:
        shown = f"{PREFIX}{nearest.upper()}"
    else:
        shown = f"--{nearest.replace('_', '-')}"
    return ConfigError(
        f"{origin} is not a setting.",
        hint=f"The nearest is {shown} ({_full_path(known[nearest][0])}).",
    )


def parse_flags(arguments: Sequence[str]) -> dict[str, object]:
    """Flags of any setting, as they stand on a command line, for `from_flags`.

    `--name value`, `--name=value`; a `--name` without a value is true; a repeated one is a list.

    Raises: ConfigError.
    """
    flags: dict[str, object] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument == "--":
            raise ConfigError(
                f"{argument!r} is not a flag.", hint="Flags are --NAME VALUE or --NAME=VALUE."
            )
        name, equals, text = argument[2:].partition("=")
        value: object = text
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else True
        if name in flags:
            before = flags[name]
            value = [*(before if isinstance(before, list) else [before]), value]
        flags[name] = value
    return flags
