"""The configuration: every setting once, read from a file, the environment and flags.

`load` gives a frozen `Config`; the modules beside this one are its rooms, from the kinds of value
(`kinds`) and the catalog (`settings`) to the sources (`layers`) and precedence (`load`).
"""

from connector.config.kinds import ColumnPin, Secret, TlsFiles
from connector.config.layers import Origin, Source, parse_flags
from connector.config.load import Config, find_file, load
from connector.config.reader import ShownSetting
from connector.config.settings import (
    Dataset,
    Flight,
    History,
    Http,
    InitialSnapshot,
    InvalidCheckpointBehavior,
    LogFormat,
    LogLevel,
    OffsetStore,
    Poison,
    Publish,
    PublishFormat,
    Quack,
    Query,
    RefreshMode,
    Runtime,
    WalStorage,
)

__all__ = [
    "ColumnPin",
    "Config",
    "Dataset",
    "Flight",
    "History",
    "Http",
    "InitialSnapshot",
    "InvalidCheckpointBehavior",
    "LogFormat",
    "LogLevel",
    "OffsetStore",
    "Origin",
    "Poison",
    "Publish",
    "PublishFormat",
    "Quack",
    "Query",
    "RefreshMode",
    "Runtime",
    "Secret",
    "ShownSetting",
    "Source",
    "TlsFiles",
    "WalStorage",
    "find_file",
    "load",
    "parse_flags",
]
