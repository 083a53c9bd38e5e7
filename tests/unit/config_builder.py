"""Builders for configuration tests: a file from text, a load without a machine around it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from connector.config import Config, load
from connector.config.interpolation import SecretsManager
from connector.errors import ConfigError

REGION = {"AWS_REGION": "eu-west-1"}


def written(directory: Path, text: str) -> Path:
    """A file `dynaduck.yaml` with the text."""
    path = directory / "dynaduck.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def loaded(
    path: Path | None = None,
    env: Mapping[str, str] = REGION,
    flags: Mapping[str, object] | None = None,
    secrets_manager: SecretsManager | None = None,
) -> Config:
    """The configuration of a file and flags; one table where neither names any."""
    given: dict[str, object] = {"table": ["orders"]} if path is None else {}
    return load(path, env, given | dict(flags or {}), secrets_manager=secrets_manager)


def refused(
    path: Path | None = None,
    env: Mapping[str, str] = REGION,
    flags: Mapping[str, object] | None = None,
) -> ConfigError:
    """The error of a configuration that cannot be used."""
    with pytest.raises(ConfigError) as caught:
        loaded(path, env, flags)
    return caught.value
