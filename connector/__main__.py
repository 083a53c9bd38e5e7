"""Where the process begins: `dynaduck` and `python -m connector` are this.

Keeps pandas out of the process, lets `dynaduck run` outlive a SIGHUP from its first moment on, then
hands over to the command line, whose import takes a second or more. Where pandas is installed,
pyarrow imports it at the first array that is made of Python values: a second of CPU at each start
and 38 MB in each service, for nothing that is used here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

from connector.hang_up import outlive_early_reloads


class WithoutPandas:
    """A finder that comes first and tells pyarrow, which asks, that there is no pandas."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("dynaduck does without pandas.", name=name)
        return None


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        outlive_early_reloads()
    sys.meta_path.insert(0, WithoutPandas())
    import_module("connector.cli").main()


if __name__ == "__main__":
    main()
