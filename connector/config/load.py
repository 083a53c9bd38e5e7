"""The configuration: flags over environment over file, resolved once at start and frozen.

Owns precedence. The settings are `settings`, what one source says is a `layers.Layer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connector.config.copy_target import target_problems
from connector.config.datasets import build_datasets
from connector.config.interpolation import Interpolation, SecretsManager, masked
from connector.config.layers import Layer, Origin, from_environment, from_file, from_flags
from connector.config.reader import Reader, ShownSetting, merged
from connector.config.runtime import build_runtime, secret_directories
from connector.config.settings import Dataset, Runtime, runtime_settings
from connector.config.yaml_file import read_file
from connector.errors import ConfigError

FILE_NAMES = ("dynaduck.yaml", "dynaduck.yml", "spicepod.yaml", "spicepod.yml")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Config:
    """What holds. A path is `runtime.http.port` or `datasets.orders.params.scan_interval`."""

    datasets: tuple[Dataset, ...]
    runtime: Runtime
    origins: Mapping[str, Origin]
    shown: tuple[ShownSetting, ...]
    warnings: tuple[str, ...]
    file: Path | None
    secret_texts: frozenset[str]

    def dataset(self, name: str) -> Dataset:
        """Raises: ConfigError when there is none of that name, in whatever case."""
        for dataset in self.datasets:
            if dataset.name.lower() == name.lower():
                return dataset
        known = ", ".join(dataset.name for dataset in self.datasets)
        raise ConfigError(f"There is no dataset {name}.", hint=f"There are: {known}.")

    def mask(self, text: str) -> str:
        """The text, for a log or an answer, with `***` for every secret of the configuration."""
        return masked(text, self.secret_texts)

    def __repr__(self) -> str:
        return f"Config(datasets={self.datasets!r}, file={self.file!r})"


def find_file(named: Path | None, env: Mapping[str, str], directory: Path) -> Path | None:
    """The file to load: the named one, DYNADUCK_CONFIG, or the first usual name that exists."""
    if named is not None:
        return named
    if env.get("DYNADUCK_CONFIG"):
        return Path(env["DYNADUCK_CONFIG"])
    candidates = (directory / name for name in FILE_NAMES)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def load(
    path: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    secrets_manager: SecretsManager | None = None,
    datasets_wanted: bool = True,
) -> Config:
    """Everything resolved.

    secrets_manager   asked last for `${secrets:NAME}`
    datasets_wanted   no dataset at all is an error

    Raises: ConfigError, with all that is wrong in it.
    """
    file_layer = from_file(read_file(path)) if path else Layer()
    layers = (file_layer, from_environment(env), from_flags(flags))
    problems = [problem for layer in layers for problem in layer.problems]
    _raise_all(problems)

    reader = Reader(env, problems)
    runtime_block = merged(layer.runtime for layer in layers)
    reader.interpolation = Interpolation(
        env, secret_directories(runtime_block, env, reader), secrets_manager
    )
    runtime_values = reader.values("runtime", runtime_settings(), runtime_block)
    runtime = build_runtime(runtime_values, runtime_block, reader)
    datasets = build_datasets(layers, env, reader)
    problems += target_problems(datasets, runtime.replica_file)
    if datasets_wanted and not datasets and not problems:
        problems.append(
            ConfigError(
                "There is no dataset.",
                hint="Give --table NAME, or a file with `datasets:` by -c FILE.",
            )
        )
    _raise_all(problems)
    return Config(
        datasets=datasets,
        runtime=runtime,
        origins=reader.origins,
        shown=tuple(reader.shown.values()),
        warnings=tuple(
            [warning for layer in layers for warning in layer.warnings] + reader.warnings
        ),
        file=path,
        secret_texts=reader.interpolation.secret_texts | reader.secrets,
    )


def _raise_all(problems: Sequence[ConfigError]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = [f"{problem.message} {problem.hint}".rstrip() for problem in problems]
        listed = "\n".join(f"- {line}" for line in lines)
        raise ConfigError(f"{len(problems)} settings are wrong:\n{listed}")
