"""A hook of mkdocs: pages that the navigation does not name come under one heading at its end.

Decisions and pages about testing are added often; a list of them by hand would always be behind.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

HEADING: Final = "How it is made"


def on_config(config: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the rest of docs_dir to the navigation; called by mkdocs before it reads a page."""
    config["nav"] = completed(config["nav"], Path(config["docs_dir"]))
    return config


def completed(nav: list[Any], directory: Path) -> list[Any]:
    named = set(pages(nav))
    found = (path.relative_to(directory).as_posix() for path in directory.rglob("*.md"))
    rest = sorted((page for page in found if page not in named), key=lambda p: (p.count("/"), p))
    return [*nav, {HEADING: rest}] if rest else nav


def pages(nav: Any) -> list[str]:
    """Every page that a navigation names, in its order."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in pages(entry)]
