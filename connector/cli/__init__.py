"""The command line: `dynaduck` and its commands.

`app` owns what they share, each other module a family of commands. A command decides nothing: it
is a call into the room that does the work.
"""

from connector.cli import (
    ask,
    cluster,
    dead_letters,
    prepare,
    restore,
    segments,
    serve,
    settings,
)
from connector.cli.app import app

__all__ = [
    "app",
    "ask",
    "cluster",
    "dead_letters",
    "main",
    "prepare",
    "restore",
    "segments",
    "serve",
    "settings",
]


def main() -> None:
    app()
