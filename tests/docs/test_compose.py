"""What runs dynaduck elsewhere, read as its tools read it: compose, Kubernetes, systemd."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.config import load
from connector.service import DRAIN_S, JOIN_S

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
KUBERNETES = {
    each["kind"]: each
    for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "sidecar.yaml").read_text("utf-8"))
}
# Draining, then the loops' last calls; an end before that is a kill, which loses nothing either.
PATIENCE_S = DRAIN_S + JOIN_S
OPEN_PATHS = {"/health", "/v1/ready", "/metrics"}


def test_the_composed_services_are_wired_together() -> None:
    """Emulator, table, connector, Prometheus and Grafana, each after what it needs."""
    assert set(SERVICES) == {"emulator", "seed", "connector", "prometheus", "grafana"}
    for name, service in SERVICES.items():
        for other in service.get("depends_on", {}):
            assert other in SERVICES, name
    assert SERVICES["connector"]["network_mode"] == "service:emulator"
    assert "grafana" not in SERVICES["prometheus"].get("depends_on", {})


def test_every_mounted_file_exists() -> None:
    """A bind mount of a missing file becomes an empty directory without a word."""
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
                assert volume.endswith(":ro"), volume
            else:
                assert source in COMPOSE["volumes"]


def test_ports_are_open_on_loopback_alone() -> None:
    """A first try on a laptop shows nothing to its network."""
    for service in SERVICES.values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_our_containers_cannot_write_their_image() -> None:
    """Read-only root, no capability, no way to new privileges."""
    for name in ("emulator", "seed", "connector"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_others_images_are_pinned() -> None:
    """A version, never `latest`."""
    for name in ("prometheus", "grafana"):
        assert re.search(r":v?\d+\.\d+\.\d+$", SERVICES[name]["image"])


def test_prometheus_finds_the_connector_and_the_rules() -> None:
    """Its target is a name of the network that the connector is on, at the port it listens on."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "dynaduck"  # what the rule DynaduckDown names
    host, port = job["static_configs"][0]["targets"][0].split(":")
    assert host in SERVICES["emulator"]["networks"]["default"]["aliases"]
    assert any(each.endswith(f":{port}") for each in SERVICES["emulator"]["ports"])
    mounted = {each.split(":")[1] for each in SERVICES["prometheus"]["volumes"]}
    assert set(config["rule_files"]) <= mounted


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    """The data source is the composed Prometheus, the provider reads where the JSON is mounted."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text("utf-8"))
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((provisioning / "dashboards" / "dynaduck.yml").read_text("utf-8"))
    path = provider["providers"][0]["options"]["path"]
    mounts = dict(each.split(":")[1::-1] for each in SERVICES["grafana"]["volumes"])
    assert mounts[path] == "./deploy/grafana/dashboards"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{path}/dynaduck.json"


def sidecar() -> dict[str, Any]:
    containers = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return next(each for each in containers if each["name"] == "dynaduck")


def test_the_kubernetes_configuration_loads(tmp_path: Path) -> None:
    """The ConfigMap is a configuration, its secret comes from the container's environment."""
    path = tmp_path / "dynaduck.yaml"
    path.write_text(KUBERNETES["ConfigMap"]["data"]["dynaduck.yaml"], encoding="utf-8")
    (variable,) = sidecar()["env"]
    config = load(path, {variable["name"]: "token"}, {})
    assert config.runtime.http.token is not None
    assert config.runtime.http.port == sidecar()["ports"][0]["containerPort"]
    mounts = {each["mountPath"] for each in sidecar()["volumeMounts"]}
    assert str(config.runtime.data_dir.parent) in mounts
    limit = sidecar()["resources"]["limits"]["memory"]
    assert int(limit.removesuffix("Mi")) * 2**20 > config.runtime.memory_limit_bytes


def test_the_probes_ask_what_needs_no_token() -> None:
    """Alive is another question than ready: loading must not restart the container."""
    liveness = sidecar()["livenessProbe"]["httpGet"]["path"]
    readiness = sidecar()["readinessProbe"]["httpGet"]["path"]
    assert (liveness, readiness) == ("/health", "/v1/ready")
    annotations = KUBERNETES["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert {liveness, readiness, annotations["prometheus.io/path"]} == OPEN_PATHS


def test_the_pod_runs_without_root_and_has_time_to_drain() -> None:
    """Non-root, read-only root with a place for temporary files, and patience at the end."""
    spec = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert sidecar()["securityContext"]["readOnlyRootFilesystem"] is True
    assert "/tmp" in {each["mountPath"] for each in sidecar()["volumeMounts"]}
    assert spec["terminationGracePeriodSeconds"] >= PATIENCE_S
    stop = SERVICES["connector"]["stop_grace_period"]
    assert int(stop.removesuffix("s")) >= PATIENCE_S


@pytest.fixture
def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read(DEPLOY / "systemd" / "dynaduck.service", encoding="utf-8")
    return parser


def test_the_unit_does_not_restart_what_a_person_must_mend(
    unit: configparser.RawConfigParser,
) -> None:
    """Status 2 is a refused start; SIGTERM drains, and is given the time for it."""
    service = unit["Service"]
    assert service["RestartPreventExitStatus"] == "2"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= PATIENCE_S
    assert service["ExecStart"].split()[1:3] == ["run", "--config"]


def test_the_unit_writes_its_state_directory_alone(unit: configparser.RawConfigParser) -> None:
    """No root, a strict file system, and data where systemd makes a directory for it."""
    service = unit["Service"]
    assert service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert f"DYNADUCK_DATA_DIR=/var/lib/{service['StateDirectory']}" in service["Environment"]
