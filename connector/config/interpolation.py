"""`${secrets:NAME}` and `${env:NAME}` inside values, and the masking of what came from there.

Owns the syntax, the order in which secrets are looked for (environment, file, AWS Secrets Manager)
and the list of texts that no output may show. Knows no setting; the call to AWS is a seam.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from connector.errors import ConfigError

SecretsManager = Callable[[str], str | None]
"""The secret's text by its name, None where AWS knows no such secret."""

_REFERENCE = re.compile(r"\$\$\{|\$\{\s*([A-Za-z_]+)\s*:\s*([^}]*?)\s*\}")
_NAME = re.compile(r"([A-Za-z0-9/_+=.@-]+)(?:#(\S+))?", re.ASCII)
# A mask for shorter ones would only tear holes into logs; nothing this short is a secret.
_SHORTEST_MASKED = 4


class Interpolation:
    """Replaces references and remembers which texts are secret. Not for threads."""

    def __init__(
        self,
        env: Mapping[str, str],
        secret_directories: Sequence[Path],
        secrets_manager: SecretsManager | None = None,
    ) -> None:
        self._env = env
        self._directories = secret_directories
        self._secrets_manager = secrets_manager
        self._secrets: dict[str, str] = {}

    @property
    def secret_texts(self) -> frozenset[str]:
        return frozenset(self._secrets.values())

    def applied(self, value: Any) -> Any:
        """The value with every reference in its texts replaced; `$${` stands for `${`.

        Raises: ConfigError, which names the reference and never a secret.
        """
        if isinstance(value, str) and "${" in value:
            return _REFERENCE.sub(self._replacement, value)
        if isinstance(value, list):
            return [self.applied(entry) for entry in value]
        if isinstance(value, dict):
            return {key: self.applied(entry) for key, entry in value.items()}
        return value

    def _replacement(self, match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        store, name = match[1].lower(), match[2]
        if store == "env":
            if name not in self._env:
                raise ConfigError(
                    f"{match[0]}: the environment variable {name} is not set.",
                    hint=f"Set {name}, or write the value itself.",
                )
            return self._env[name]
        if store == "secrets":
            return self._secret(match[0], name)
        raise ConfigError(
            f"{match[0]}: there is no store {match[1]!r}.",
            hint="References are ${secrets:NAME} and ${env:NAME}.",
        )

    def _secret(self, reference: str, name: str) -> str:
        if name not in self._secrets:
            parts = _NAME.fullmatch(name)
            if parts is None:
                raise ConfigError(f"{reference}: {name!r} is no name of a secret.")
            self._secrets[name] = _member(reference, self._found(reference, parts[1]), parts[2])
        return self._secrets[name]

    def _found(self, reference: str, name: str) -> str:
        # Spice's files say aws_access_key_id where the variable is AWS_ACCESS_KEY_ID.
        for variable in (name, name.upper()):
            if self._env.get(variable):
                return self._env[variable]
        for directory in self._directories:
            if "/" not in name and name not in {".", ".."} and (directory / name).is_file():
                try:
                    return (directory / name).read_text(encoding="utf-8").rstrip("\r\n")
                except (OSError, UnicodeDecodeError) as error:
                    raise ConfigError(
                        f"{reference}: the file {directory / name} cannot be read."
                    ) from error
        if self._secrets_manager is not None:
            text = self._secrets_manager(name)
            if text is not None:
                return text
        looked = ["the environment", *(str(directory) for directory in self._directories)]
        looked += ["AWS Secrets Manager"] if self._secrets_manager else []
        raise ConfigError(
            f"{reference}: there is no secret {name}.",
            hint=f"Looked in {', '.join(looked)}.",
        )


def _member(reference: str, text: str, member: str | None) -> str:
    if member is None:
        return text
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get(member), str | int):
        raise ConfigError(f"{reference}: the secret is no JSON object with a text {member!r}.")
    return str(document[member])


def masked(text: str, secret_texts: frozenset[str]) -> str:
    """The text with `***` for every secret in it, longest first: one may hold another."""
    for secret in sorted(secret_texts, key=len, reverse=True):
        if len(secret) >= _SHORTEST_MASKED:
            text = text.replace(secret, "***")
    return text
