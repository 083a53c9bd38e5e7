"""What makes a dataset: gathered from every layer, named, put in a region, checked as a whole."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.config.layers import Block, Given, Layer, plain_name
from connector.config.reader import Reader, attributes, merged
from connector.config.settings import (
    FROM,
    NAME,
    REGION,
    SOURCE_PREFIX,
    Dataset,
    History,
    Publish,
    Setting,
    dataset_settings,
)
from connector.errors import ConfigError


@dataclass(slots=True)
class _Mention:
    """A dataset while it is gathered: what each layer says of it, lowest first."""

    name: str
    blocks: list[Block]


def _gathered(layers: Sequence[Layer], reader: Reader) -> list[_Mention]:
    """Every dataset of every layer, in the order in which they are first named."""
    mentions: list[_Mention] = []
    for depth, layer in enumerate(layers):
        new_here: set[str] = set()
        for reference, block in layer.datasets:
            mention = _mentioned(mentions, reference, block, reader)
            if mention is None and reference is not None and FROM.key not in block:
                origin = next(iter(block.values())).origin
                known = ", ".join(known.name for known in mentions) or "none"
                reader.problems.append(
                    ConfigError(
                        f"{origin}: there is no dataset {reference}.", hint=f"There are: {known}."
                    )
                )
                continue
            if mention is None or (reference is None and mention.name in new_here):
                mention = _Mention(_name_of(block, reader) or f"[{len(mentions)}]", [])
                mention.blocks = [{} for _ in layers]
                mentions.append(mention)
                new_here.add(mention.name)
            mention.blocks[depth] |= block
        for table, origin in layer.tables:
            text = table if re.match(f"{SOURCE_PREFIX}|arn:", table) else f"dynamodb:{table}"
            block = {FROM.key: Given(FROM, text, origin, True)}
            name = _name_of(block, reader)
            if name is None or all(_table_of(mention, reader) != name for mention in mentions):
                blocks: list[Block] = [{} for _ in layers]
                blocks[depth] = block
                mentions.append(_Mention(name or table, blocks))
    for mention in mentions:
        mention.blocks = [
            layer.every_dataset | block for layer, block in zip(layers, mention.blocks, strict=True)
        ]
    return mentions


def _mentioned(
    mentions: Sequence[_Mention], reference: str | None, block: Block, reader: Reader
) -> _Mention | None:
    wanted = _name_of(block, reader) if reference is None else reference
    if wanted is None:
        return None
    if reference is not None and reference.isdigit() and int(reference) < len(mentions):
        return mentions[int(reference)]
    exact = [mention for mention in mentions if mention.name.lower() == wanted.lower()]
    if exact or reference is None:
        return exact[0] if exact else None
    # A variable's name has neither the case nor the dashes of the dataset's.
    alike = [mention for mention in mentions if plain_name(mention.name) == plain_name(wanted)]
    return alike[0] if len(alike) == 1 else None


def _quietly(block: Block, setting: Setting, reader: Reader) -> str | None:
    """A value that names a dataset; what is wrong with it is said when the dataset is read."""
    given = block.get(setting.key)
    if given is None:
        return None
    try:
        return str(reader.parsed(given))
    except (ConfigError, ValueError):
        return None


def _name_of(block: Block, reader: Reader) -> str | None:
    source = _quietly(block, FROM, reader)
    return _quietly(block, NAME, reader) or (_table_and_arn(source)[0] if source else None)


def _table_of(mention: _Mention, reader: Reader) -> str | None:
    source = _quietly(merged(mention.blocks), FROM, reader)
    return _table_and_arn(source)[0] if source else None


def _table_and_arn(source: str) -> tuple[str, str | None]:
    place = re.sub(f"^{SOURCE_PREFIX}", "", source)
    return (place.rpartition("/")[2], place) if place.startswith("arn:") else (place, None)


def build_datasets(
    layers: Sequence[Layer], env: Mapping[str, str], reader: Reader
) -> tuple[Dataset, ...]:
    datasets: list[Dataset] = []
    for mention in _gathered(layers, reader):
        dataset = _dataset(mention, env, reader)
        if dataset is None:
            continue
        # DuckDB's names differ by more than case.
        if any(dataset.name.lower() == other.name.lower() for other in datasets):
            reader.problems.append(
                ConfigError(
                    f"Two datasets are called {dataset.name}.", hint="Give one of them a `name:`."
                )
            )
        datasets.append(dataset)
    reader.problems += _taken_history_names(datasets)
    return tuple(datasets)


def _taken_history_names(datasets: Sequence[Dataset]) -> list[ConfigError]:
    names = {dataset.name.lower(): dataset.name for dataset in datasets}
    return [
        ConfigError(
            f"Dataset {taken} has the name of the history of {dataset.name}.",
            hint="Give it another `name:`.",
        )
        for dataset in datasets
        if dataset.history.enabled
        and (taken := names.get(f"{dataset.name}_history".lower())) is not None
    ]


def _dataset(mention: _Mention, env: Mapping[str, str], reader: Reader) -> Dataset | None:
    block = merged(mention.blocks)
    separator = "" if mention.name.startswith("[") else "."
    path = f"datasets{separator}{mention.name}"
    if FROM.key not in block:
        reader.problems.append(
            ConfigError(f"{path} has no `from`.", hint="Say `from: dynamodb:TABLE`.")
        )
        return None
    said_before = len(reader.problems)
    values = reader.values(path, dataset_settings(), block)
    if len(reader.problems) > said_before:
        return None
    table, arn = _table_and_arn(values[FROM.key])
    if values[NAME.key] is None:
        reader.derive(f"{path}.name", table, "the table's name")
    region, follows = _region(path, values[REGION.key], arn, env, reader)
    if values[REGION.key] is None and region is not None:
        reader.derive(f"{path}.{REGION.key}", region, follows)
    if values["params.streams_endpoint_url"] is None and values["params.endpoint_url"]:
        values["params.streams_endpoint_url"] = values["params.endpoint_url"]
        reader.derive(
            f"{path}.params.streams_endpoint_url", values["params.endpoint_url"], "endpoint_url"
        )
    reader.problems += _problems_of_dataset(path, values)
    own = [setting for setting in dataset_settings() if setting not in (FROM, NAME, REGION)]
    return Dataset(
        name=values[NAME.key] or table,
        table=table,
        table_arn=arn,
        region=region or "",
        **attributes(own, values, {"history": History, "publish": Publish}),
    )


def _problems_of_dataset(path: str, values: Mapping[str, Any]) -> list[ConfigError]:
    problems = []
    parts = ("access_key_id", "secret_access_key", "session_token")
    key, secret, token = (values[f"params.dynamodb_aws_{part}"] for part in parts)
    if (key is None) != (secret is None) or (token is not None and key is None):
        missing = [
            f"dynamodb_aws_{name}"
            for name, value in zip(parts[:2], (key, secret), strict=True)
            if value is None
        ]
        problems.append(
            ConfigError(
                f"{path}.params has AWS keys without {' and '.join(missing)}.",
                hint="Give both parts, or none and let the AWS credential chain find them.",
            )
        )
    if values["include"] and values["exclude"]:
        problems.append(
            ConfigError(f"{path} has both include and exclude.", hint="Keep one of them.")
        )
    if values["publish.every"] is not None and values["publish.to"] is None:
        problems.append(
            ConfigError(
                f"{path}.publish.to is not set while publish.every is.",
                hint="Say where the copies go: a path or s3://bucket/prefix.",
            )
        )
    return problems


def _region(
    path: str, said: str | None, arn: str | None, env: Mapping[str, str], reader: Reader
) -> tuple[str | None, str]:
    """The region, and what it follows."""
    of_arn = arn.split(":")[3] if arn else None
    if said and of_arn and said != of_arn:
        reader.problems.append(
            ConfigError(
                f"{path}.{REGION.key} is {said} while the table's ARN says {of_arn}.",
                hint="Leave the setting out.",
            )
        )
    if said or of_arn:
        return (said or of_arn), "the table's ARN"
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if env.get(variable):
            return _checked_region(env[variable], variable, reader), variable
    profile = env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE") or "default"
    of_profile = _region_of_profile(profile, env, reader)
    if of_profile:
        follows = f"the AWS profile {profile}"
        return _checked_region(of_profile, follows, reader), follows
    reader.problems.append(
        ConfigError(
            f"{path}.{REGION.key} is not set and no AWS region is known otherwise.",
            hint=f"Set {REGION.key.removeprefix('params.')} for the dataset, or AWS_REGION.",
        )
    )
    return None, ""


def _checked_region(region: str, follows: str, reader: Reader) -> str:
    """The region, which becomes part of a host name."""
    try:
        REGION.kind.parse(region)
    except ValueError:
        message = f"{follows} says the region {region!r}; {REGION.kind.wanted} is wanted."
        reader.problems.append(ConfigError(message))
    return region


def _region_of_profile(profile: str, env: Mapping[str, str], reader: Reader) -> str | None:
    name = env.get("AWS_CONFIG_FILE")
    if not name and not env.get("HOME"):
        return None
    path = Path(name) if name else Path(env["HOME"]) / ".aws" / "config"
    parser = configparser.RawConfigParser()
    try:
        parser.read(path.expanduser(), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        reader.problems.append(ConfigError(f"The AWS configuration {path} is broken: {error}."))
        return None
    section = "default" if profile == "default" else f"profile {profile}"
    return parser.get(section, "region", fallback=None)
