"""Precedence as a property: any settings in any of the three sources."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from connector.config import Source, load

# The path in the file, and two values of which neither is the default.
SETTINGS = {
    "runtime.http.port": ("1001", "1002", "1003"),
    "runtime.memory_limit": ("100MB", "200MB", "300MB"),
    "runtime.wal_s3_bucket": ("one", "two", "three"),
    "runtime.query.timeout": ("1s", "2s", "3s"),
    "datasets.orders.params.scan_interval": ("1s", "2s", "3s"),
    "datasets.orders.max_columns": ("1", "2", "3"),
    "datasets.orders.acceleration.refresh_check_interval": ("1m", "2m", "3m"),
}
SOURCES = (Source.FILE, Source.ENVIRONMENT, Source.FLAG)


def _file(directory: Path, paths: dict[str, str]) -> Path:
    dataset: dict[str, object] = {"from": "dynamodb:orders"}
    tree: dict[str, object] = {"datasets": [dataset]}
    for path, value in paths.items():
        top, rest = (
            (dataset, path.split(".")[2:]) if "datasets" in path else (tree, path.split("."))
        )
        for section in rest[:-1]:
            inner = top.setdefault(section, {})
            assert isinstance(inner, dict)
            top = inner
        top[rest[-1]] = value
    file = directory / "dynaduck.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


@given(
    st.dictionaries(
        st.sampled_from(sorted(SETTINGS)), st.sets(st.sampled_from(SOURCES), min_size=1)
    )
)
def test_the_highest_source_that_says_a_setting_wins(said: dict[str, set[Source]]) -> None:
    """For every setting by itself: the flag's value, else the variable's, else the file's, else
    the default; and the origin names that source."""
    values = {
        source: {path: SETTINGS[path][rank] for path in said if source in said[path]}
        for rank, source in enumerate(SOURCES)
    }
    env = {
        f"DYNADUCK_{path.replace('.', '__').upper()}": value
        for path, value in values[Source.ENVIRONMENT].items()
    }
    with tempfile.TemporaryDirectory() as directory:
        file = _file(Path(directory), values[Source.FILE])
        config = load(file, env | {"AWS_REGION": "eu-west-1"}, values[Source.FLAG])
    shown = {setting.path: setting.value for setting in config.shown}
    for path in SETTINGS:
        highest = max(said.get(path, ()), key=SOURCES.index, default=None)
        if highest is None:
            assert config.origins[path].source is Source.DEFAULT
        else:
            assert config.origins[path].source is highest
            assert shown[path] == SETTINGS[path][SOURCES.index(highest)]
