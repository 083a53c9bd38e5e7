"""The command line: `dynaduck` and its commands.

`app` owns what they share, each other module a family of commands. A command decides nothing: it
is a call into the room that does the work.
"""

from connector.cli import ask, dead_letters, prepare, serve, settings
from connector.cli.app import app

__all__ = ["app", "ask", "dead_letters", "main", "prepare", "serve", "settings"]


def main() -> None:
    app()
