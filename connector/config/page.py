"""The settings as a page of the documentation and as JSON Schema, both made from the catalog.

`python -m connector.config.page` prints the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from connector.config.settings import Setting, dataset_settings, runtime_settings
from connector.config.spice import IGNORED_DATASET_KEYS

_HEAD = """\
# Settings

Every setting, with its default. This page is made from the code: `make docs` writes it anew.

A setting comes from a flag, an environment variable or the YAML file; flags win over the
environment, the environment over the file. `dynaduck config show` prints what holds and where each
value comes from, `dynaduck config schema` a JSON Schema for editors.

| Source | How the setting `runtime.http.port` is written |
|---|---|
| File | `runtime: {http: {port: 8090}}` |
| Environment | `DYNADUCK_RUNTIME__HTTP__PORT=8090`, or shorter `DYNADUCK_HTTP__PORT` |
| Flag | `--runtime.http.port 8090`, or shorter `--http.port`, `--http-port` |

The file is that of `-c FILE` or `DYNADUCK_CONFIG`, or else `dynaduck.yaml` or `spicepod.yaml` in
the working directory.

Leading sections may be left out of variables and flags while what is left means one setting only.
Dots, dashes and underscores are the same in flags; in variables, `__` stands for the dot.

- A dataset's setting without a dataset's name holds for every dataset: `--scan-interval 1s`,
  `DYNADUCK_SCAN_INTERVAL=1s`. For one of them: `--datasets.orders.scan-interval 1s`,
  `DYNADUCK_DATASETS__ORDERS__SCAN_INTERVAL=1s`.
- `--table orders` (repeatable) and `DYNADUCK_TABLES=orders,users` make datasets without a file;
  `DYNADUCK_DATASETS` takes the whole YAML list.
- Settings under `params` may be written with or without the prefix `dynamodb_`.
- Durations are numbers with a unit, `ms`, `s`, `m`, `h` or `d`: `250ms`, `2s`, `1h30m`. Sizes have
  `B`, `KB`, `MB`, `GB`, `TB`, or `KiB` to `TiB` for powers of 1,024.
- `${env:NAME}` is an environment variable. `${secrets:NAME}` is looked for in the environment, then
  as a file of that name in `runtime.secrets_dir` (and in systemd's `CREDENTIALS_DIRECTORY`), then
  in AWS Secrets Manager; `${secrets:NAME#KEY}` takes one text out of a JSON object. What comes from
  there shows as `***` everywhere. `$${` is a plain `${`.
- A key that is not known is an error that names the nearest known one. Keys that only Spice.ai's
  `spicepod.yaml` knows are ignored, each with a warning; datasets of a spicepod that do not read
  from DynamoDB likewise.

A running service reads its file again on SIGHUP (`systemctl reload dynaduck`, `kill -HUP PID`). The
whole file is checked first; a wrong one changes nothing. Settings with `yes` under Reloads hold at
once; a change of any other is named in the log, in `dynaduck status` and on the status page, and
waits for a restart. Flags and environment stay those of the start, and still win over the file.
"""

_FOREIGN_HEAD = """\
## Names of other products

These variables are read where ours is not set; a block `skippr:` in the file is read as `runtime:`.

| Variable | Setting |
|---|---|
"""


def settings_page() -> str:
    """docs/settings.md."""
    parts = [_HEAD]
    parts += ["## A dataset\n\nKeys of an entry of `datasets`.\n", _table(dataset_settings())]
    parts += ["## The runtime\n\nKeys below `runtime`.\n", _table(runtime_settings())]
    aliases = [
        f"| `{alias.key}` | `{setting.key}` | {_values(alias.values)} |"
        for setting in dataset_settings()
        for alias in setting.aliases
        if alias.is_deprecated
    ]
    parts.append(
        "## Deprecated names\n\nThey work, with a warning.\n\n"
        "| Name | Now | Values |\n|---|---|---|\n" + "\n".join(aliases) + "\n"
    )
    foreign = [
        f"| `{variable}` | `runtime.{setting.key}` |"
        for setting in runtime_settings()
        for variable in setting.environment
    ]
    parts.append(_FOREIGN_HEAD + "\n".join(foreign) + "\n")
    return "\n".join(parts)


def _table(settings: Iterable[Setting]) -> str:
    rows = ["| Setting | Kind | Default | Reloads | What it does |", "|---|---|---|---|---|"]
    for setting in settings:
        default = f"`{setting.default}`" if setting.default is not None else ""
        reloads = "yes" if setting.reloads else ""
        rows.append(
            f"| `{setting.key}` | {setting.kind.label} | {default} | {reloads} | {setting.doc} |"
        )
    return "\n".join(rows) + "\n"


def _values(values: Any) -> str:
    return ", ".join(f"`{old}` is `{new}`" for old, new in values.items()) or "the same"


def json_schema() -> dict[str, Any]:
    """A JSON Schema of the file, for editors; it knows the canonical keys and the aliases."""
    dataset = _object(dataset_settings())
    dataset["required"] = ["from"]
    for key in sorted(IGNORED_DATASET_KEYS):
        _place(dataset, key, {"description": "A setting of Spice that means nothing here."})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dynaduck",
        "type": "object",
        "properties": {
            "datasets": {"type": "array", "items": dataset},
            "runtime": _object(runtime_settings()),
        },
        "additionalProperties": False,
    }


def _object(settings: Iterable[Setting]) -> dict[str, Any]:
    top: dict[str, Any] = _empty_object()
    for setting in settings:
        schema: dict[str, Any] = {
            "anyOf": [dict(setting.kind.schema), {"type": "string", "pattern": r"\$\{"}],
            "description": setting.doc,
        }
        if setting.default is not None:
            schema["default"] = setting.default
        _place(top, setting.key, schema)
        for alias in setting.aliases:
            also = [{"enum": sorted(alias.values)}] if alias.values else []
            _place(
                top,
                alias.key,
                {
                    "anyOf": [*schema["anyOf"], *also],
                    "description": f"Another name of {setting.key}.",
                    "deprecated": alias.is_deprecated,
                },
            )
    return top


def _empty_object() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _place(top: dict[str, Any], key: str, schema: dict[str, Any]) -> None:
    *sections, name = key.split(".")
    for section in sections:
        top = top["properties"].setdefault(section, _empty_object())
    top["properties"].setdefault(name, schema)


if __name__ == "__main__":
    sys.stdout.write(settings_page())
