"""The house against what its pages and files say: links, targets, pins, images, layout."""

from __future__ import annotations

import re
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from connector.config import load
from deploy import healthcheck, seed
from emulator import Emulator

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ADDRESS = re.compile(r"://|^-|\bindex\b|\blinks\b", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A relative link names a file or folder of the repository."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_decisions_are_numbered_once_and_start_with_their_number() -> None:
    """A decision is cited by its number, so no two have the same one."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(page.name.split("-")[0]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    for number, page in zip(numbers, pages, strict=True):
        assert page.read_text(encoding="utf-8").startswith(f"# {number}. ")


def test_every_situation_is_listed_once_in_order() -> None:
    """Tests name situations by number, so the numbers run from 1 without a gap."""
    page = (ROOT / "docs" / "situations.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert numbers == list(range(1, 84))


def test_the_readme_names_only_targets_that_exist() -> None:
    """Each `make TARGET` of a page is a target of the Makefile, and each target has a help text."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    described = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:"))
    assert described == set(phony.removeprefix(".PHONY:").split())
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        commands = re.findall(r"(?:`|\n|; |&& )make ([a-z][a-z0-9-]*)", text)
        assert set(commands) <= described, page.name


def test_ci_runs_the_readmes_tests_and_the_linters() -> None:
    """.ci/run calls `make test`, the README's own test command, the older DuckDB, the linters."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    calls = [line.removeprefix("make ") for line in script if line.startswith("make ")]
    assert calls == ["test", "test-duckdb155", "lint", "docs"]
    assert "set -euo pipefail" in script
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_constraints_pin_everything_and_name_no_registry() -> None:
    """Each line is name==version; every dependency has a pin; no address of a registry."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert ADDRESS.search(text) is None
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pinned = {_normal(line.split("==")[0]) for line in lines}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line) for line in lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [entry for extra in project["optional-dependencies"].values() for entry in extra]
    for entry in project["dependencies"] + extras:
        name = _normal(re.split(r"[\[<>=~!; ]", entry)[0])
        assert name in pinned | {"dynaduck"}, entry
        assert "<" in entry or "~=" in entry or name in {"dynaduck", "structlog", "types-pyyaml"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    "folder", ["connector", "accelerator", "checkpoints", "metrics", "emulator", "tests", "bench"]
)
def test_the_asked_for_layout_stands(folder: str) -> None:
    """The asked-for packages are at the top, beside the files that a stranger looks for."""
    assert (ROOT / folder / "__init__.py").exists()
    for name in ("pyproject.toml", "docker-compose.yml", "README.md", "CHANGELOG.md", "LICENSE"):
        assert (ROOT / name).exists()


def test_the_image_copies_what_is_there_and_runs_without_root() -> None:
    """Each file of COPY exists, the user is not root, and all packages are in the image."""
    lines = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [
        word for line in lines if re.match(r"COPY (?!--)", line) for word in line.split()[1:-1]
    ]
    assert all((ROOT / word).exists() for word in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(copied)
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]


def test_the_composed_connector_has_a_configuration_that_loads() -> None:
    """The variables of docker-compose.yml are settings, off loopback with a token."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    env = {name: str(value) for name, value in services["connector"]["environment"].items()}
    env["DYNADUCK_HTTP__TOKEN"] = env["DYNADUCK_HTTP__TOKEN"].split(":-")[1].rstrip("}")
    config = load(None, env, {})
    (dataset,) = config.datasets
    assert (dataset.name, dataset.table) == (seed.TABLE, seed.TABLE)
    assert dataset.endpoint_url == services["seed"]["environment"]["ENDPOINT_URL"]
    assert config.runtime.http.host == "0.0.0.0"


def test_the_composed_table_can_be_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed makes a table with a stream, fills it, and does no harm the second time."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "emulator")
    with Emulator(shards=2) as aws:
        assert seed.seed(aws.url) == seed.seed(aws.url) == seed.ITEMS
        client = aws.client("dynamodb")
        table = client.describe_table(TableName=seed.TABLE)["Table"]
        assert table["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
        assert client.scan(TableName=seed.TABLE, Select="COUNT")["Count"] == seed.ITEMS


class _Answering(BaseHTTPRequestHandler):
    """Answers /health with 200 and anything else with 503."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_the_health_check_tells_the_living_from_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alive is a 200 from /health; another answer, or nobody on the port, is not."""
    with HTTPServer(("127.0.0.1", 0), _Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        assert healthcheck.is_alive(server.server_port)
        monkeypatch.setattr(healthcheck, "PATH", "/elsewhere")
        assert not healthcheck.is_alive(server.server_port)
        server.shutdown()
        thread.join()
    assert not healthcheck.is_alive(server.server_port)
