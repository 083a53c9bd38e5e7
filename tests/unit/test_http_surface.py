"""What each path answers, over real HTTP, to whom, and how it fails."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from accelerator.database import Database
from connector.errors import DynaduckError
from connector.health import DatasetState
from connector.reasons import Reason
from connector.surface.server import Bind
from connector.surface.status import ServiceStatus
from tests.http_builder import FakeFacts, Served, in_state, serving
from tests.query_builder import data_file

TOKEN = "correct horse battery staple"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("surface")) as opened:
        yield opened


@pytest.fixture(scope="module")
def open_surface(database: Database) -> Iterator[Served]:
    with serving(database) as served:
        yield served


@pytest.fixture
def surface(open_surface: Served) -> Served:
    """The shared surface, its service saying what it says by default."""
    fresh = FakeFacts()
    open_surface.facts.told, open_surface.facts.refusal = fresh.told, None
    open_surface.facts.done.clear()
    return open_surface


@pytest.fixture(scope="module")
def guarded(database: Database) -> Iterator[Served]:
    with serving(database, bind=Bind(port=0, token=TOKEN)) as served:
        yield served


def test_health_says_ok_whatever_the_datasets_do(surface: Served) -> None:
    """A liveness probe must not restart a service that is merely not ready."""
    surface.facts.told = in_state(DatasetState.ERROR)
    reply = surface.ask("GET", "/health")
    assert (reply.status, reply.body) == (200, b"ok")


def test_ready_is_200_only_when_every_dataset_is_ready(surface: Served) -> None:
    """A load balancer sends traffic only to what is proved; the reasons come with the 503."""
    assert surface.ask("GET", "/v1/ready").json == {"ready": True, "reasons": []}
    surface.facts.told = in_state(
        DatasetState.LAGGING, Reason("lag", "Shard s-1 is 9 s behind.", "Raise scan_max_rcu.")
    )
    reply = surface.ask("GET", "/v1/ready")
    assert reply.status == 503
    assert reply.json == {
        "ready": False,
        "reasons": [
            {
                "dataset": "orders",
                "state": "Lagging",
                "code": "lag",
                "message": "Shard s-1 is 9 s behind.",
                "remedy": "Raise scan_max_rcu.",
                "blocks": True,
            }
        ],
    }


@pytest.mark.parametrize("state", [s for s in DatasetState if s is not DatasetState.READY])
def test_no_other_state_is_ready_and_each_has_a_reason(
    surface: Served, state: DatasetState
) -> None:
    """A 503 is never without an explanation, even when the service gave none."""
    surface.facts.told = in_state(state)
    reply = surface.ask("GET", "/v1/ready")
    assert reply.status == 503
    assert [reason["state"] for reason in reply.json["reasons"]] == [state.value]
    assert reply.json["reasons"][0]["message"]


def test_without_datasets_nothing_is_ready(surface: Served) -> None:
    """No dataset is no proof."""
    surface.facts.told = ServiceStatus("1.2.3")
    assert surface.ask("GET", "/v1/ready").status == 503


def test_status_is_the_whole_document(surface: Served) -> None:
    """/v1/status carries datasets, shards and times as text, of JSON types only."""
    document = surface.ask("GET", "/v1/status").json
    assert document["ready"] is True
    assert document["version"] == "1.2.3"
    [dataset] = document["datasets"]
    assert dataset["state"] == "Ready"
    assert dataset["as_of"] == "2026-01-02T03:04:05.678Z"
    assert (dataset["lag_ms"], dataset["lag_max_ms"]) == (120, 80)
    assert dataset["shards"][0]["shard_id"] == "s-1"


def test_datasets_are_listed_as_spice_lists_them(surface: Served) -> None:
    """A list of objects with from, name and status."""
    [dataset] = surface.ask("GET", "/v1/datasets").json
    assert dataset["from"] == "dynamodb:orders-table"
    assert (dataset["name"], dataset["status"]) == ("orders", "Ready")


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("/v1/datasets/orders/acceleration/refresh", "refresh"),
        ("/v1/datasets/orders/pause", "pause"),
        ("/v1/datasets/orders/resume", "resume"),
    ],
)
def test_actions_are_accepted(surface: Served, path: str, action: str) -> None:
    """202: the service was asked; GET on the same path changes nothing."""
    assert surface.ask("GET", path).status == 405
    reply = surface.ask("POST", path)
    assert reply.status == 202
    assert "orders" in reply.json["message"]
    assert surface.facts.done == [(action, "orders")]


def test_actions_on_nothing_and_at_a_bad_time_are_refused(surface: Served) -> None:
    """404 for a dataset nobody configured, 409 with the service's own words otherwise."""
    reply = surface.ask("POST", "/v1/datasets/nope/pause")
    assert (reply.status, reply.error) == (404, "unknown_dataset")

    class Busy(DynaduckError):
        code = "busy_refreshing"

    surface.facts.refusal = Busy("A refresh is running.", hint="Wait for it.")
    reply = surface.ask("POST", "/v1/datasets/orders/acceleration/refresh")
    assert (reply.status, reply.error) == (409, "busy_refreshing")
    assert reply.json["error"]["hint"] == "Wait for it."
    assert surface.facts.done == []


def test_metrics_are_served_in_the_format_asked_for(surface: Served) -> None:
    """Prometheus' text by default, OpenMetrics on request."""
    plain = surface.ask("GET", "/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'dataset_dynamodb_records_consumed_total{name="orders"} 0' in plain.body
    modern = surface.ask("GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.body.endswith(b"# EOF\n")


def test_the_page_needs_nothing_from_elsewhere(surface: Served) -> None:
    """GET / is one document: no asset of another host, and a policy that forbids any."""
    reply = surface.ask("GET", "/")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    text = reply.body.decode()
    assert "https://" not in text
    assert "src=" not in text
    assert "/v1/status" in text


def test_wrong_paths_and_methods_are_said(surface: Served) -> None:
    """Every refusal has the same shape."""
    assert surface.ask("GET", "/nope").error == "no_such_path"
    assert surface.ask("DELETE", "/v1/status").error == "wrong_method"
    refused = surface.ask("GET", "/v1/sql")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert surface.ask("POST", "/health").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/health", "/v1/ready", "/metrics"])
def test_probes_need_no_token(guarded: Served, path: str) -> None:
    """Probes and Prometheus work without a secret, on any bind."""
    assert guarded.ask("GET", path).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/runbook"),
        ("GET", "/v1/status"),
        ("GET", "/v1/datasets"),
        ("POST", "/v1/sql"),
        ("POST", "/v1/datasets/orders/pause"),
        ("POST", "/v1/datasets/orders/resume"),
        ("POST", "/v1/datasets/orders/acceleration/refresh"),
        ("GET", "/nope"),
        ("GET", "/health/../v1/status"),
        ("GET", "//health"),
    ],
)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": f"bearer {TOKEN}x"},
        {"authorization": f"Digest {TOKEN}"},
        {"authorization": "Basic !!!"},
        {"authorization": "Basic " + base64.b64encode(b"user").decode()},
        {"x_api_key": "wrong"},
        {"x_api_key": ""},
    ],
)
def test_the_rest_needs_the_token(
    guarded: Served, method: str, path: str, given: dict[str, str]
) -> None:
    """401, the same for every wrong credential, before anything else is looked at."""
    body = b"SELECT 1" if method == "POST" else None
    reply = guarded.ask(method, path, body, headers=given)
    assert (reply.status, reply.error) == (401, "unauthorized")
    assert TOKEN not in reply.body.decode()
    assert reply.headers["www-authenticate"].startswith("Basic")
    assert guarded.facts.done == []


@pytest.mark.parametrize(
    "given",
    [
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer {TOKEN}"},
        {"x_api_key": TOKEN},
        {"authorization": "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()},
    ],
)
def test_the_token_opens(guarded: Served, given: dict[str, str]) -> None:
    """As a bearer token, as an API key, and as the password that a browser asks for."""
    reply = guarded.ask("POST", "/v1/sql", b"SELECT 1 AS one", headers=given)
    assert reply.json == [{"one": 1}]


def test_pages_of_other_origins_are_kept_out(surface: Served) -> None:
    """A web page that a user visits must not pause a dataset on the user's machine."""
    path = "/v1/datasets/orders/pause"
    own = f"http://127.0.0.1:{surface.server.port}"
    for given in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
    ):
        reply = surface.ask("POST", path, headers=given)
        assert (reply.status, reply.error) == (403, "foreign_origin")
    assert surface.facts.done == []
    assert surface.ask("POST", path, origin=own).status == 202
    assert surface.ask("POST", path, sec_fetch_site="same-origin").status == 202


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        ("127.0.0.1:8090", True),
        ("localhost", True),
        ("[::1]:8090", True),
        ("evil.example", False),
        ("evil.example:8090", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8090", False),
        ("[2001:db8::1]:8090", False),
    ],
)
def test_a_name_that_was_made_to_point_here_is_no_way_in(
    surface: Served, host: str, is_answered: bool
) -> None:
    """A page of evil.example that resolves to 127.0.0.1 cannot read the copy; probes still work."""
    asked = {"host": host, "origin": f"http://{host}"}
    reply = surface.ask("POST", "/v1/sql", b"SELECT 1 AS a", headers=asked)
    assert (reply.status == 200) is is_answered
    assert is_answered or reply.error == "foreign_host"
    assert surface.ask("GET", "/health", headers={"host": host}).status == 200


def test_with_a_token_any_name_will_do(guarded: Served) -> None:
    """Behind a proxy or a service name the token is what counts."""
    given = {"host": "dynaduck.internal", "authorization": f"Bearer {TOKEN}"}
    assert guarded.ask("GET", "/v1/status", headers=given).status == 200


def raw_request(served: Served, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=30) as connection:
        received = b""
        # The server may hang up while we still talk.
        with suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
    return received


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 1000,
        b"GET\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nSELECT",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_malformed_requests_harm_nobody(surface: Served, data: bytes) -> None:
    """Garbage gets an error or nothing, and the next client its answer."""
    answer = raw_request(surface, data)
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert surface.ask("GET", "/health").status == 200


def test_a_huge_body_is_refused_unread(surface: Served) -> None:
    """413 before it fills the memory."""
    reply = surface.sql("SELECT 1 -- " + "x" * 3_000_000)
    assert (reply.status, reply.error) == (413, "too_large")


def test_requests_in_parallel(surface: Served) -> None:
    """Probes answer while queries run in all slots."""
    limit = surface.queries.limits.max_concurrent
    held = [surface.queries.open("SELECT range FROM range(100000000000)") for _ in range(limit)]
    for query in held:
        query.start()
    try:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(surface.ask("GET", "/health").status))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [200] * 20
    finally:
        for query in held:
            query.close()
