"""The way from this host to AWS: names, connections, TLS, proxies, and the clock.

Owns which hosts a dataset's calls go to and what a failure on the way means. Must not know what is
called there: a host is asked once, without credentials, by `connector.examine.reachability`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from connector.aws.codes import CLOCK_HINT
from connector.config import Dataset, RefreshMode
from connector.examine.findings import Finding, Verdict
from connector.examine.reachability import Reach, Step

SKEW_NOTED_S: Final = 30.0
SKEW_REFUSED_S: Final = 300.0  # AWS refuses signatures more than 5 minutes off

ReachHost = Callable[[str], Reach]


def examine(
    settings: Dataset, called: Mapping[str, str], reach_host: ReachHost, wall_s: float
) -> list[Finding]:
    """The findings of each host, and of the clock.

    called   the hosts that botocore has resolved, by its service's name
    wall_s   the host's clock, which signatures are dated by
    """
    reached = {service: reach_host(url) for service, url in hosts(settings, called).items()}
    findings = [_of_host(settings, service, reached) for service in reached]
    dates_ms = [found.at_ms for found in reached.values() if found.at_ms]
    return [*findings, _of_clock(settings, dates_ms, wall_s)]


def hosts(settings: Dataset, called: Mapping[str, str]) -> dict[str, str]:
    """As botocore resolved them; as it would, for what was never called."""
    suffix = f"{settings.region}.amazonaws.com"
    suffix += ".cn" if settings.region.startswith("cn-") else ""
    table = called.get("dynamodb", f"dynamodb.{suffix}")
    found = {"dynamodb": settings.endpoint_url or f"https://{table}"}
    if settings.refresh_mode is RefreshMode.CHANGES:
        streams = called.get("dynamodbstreams", f"streams.dynamodb.{suffix}")
        said = settings.streams_endpoint_url or settings.endpoint_url
        found["streams"] = said or f"https://{streams}"
    return found


def _of_host(settings: Dataset, service: str, reached: Mapping[str, Reach]) -> Finding:
    found, check = reached[service], f"{service} host"
    if found.proxy:
        said = f"{found.url} by way of the proxy {found.proxy}: not tried alone."
        return Finding(settings.name, check, Verdict.NOTE, said)
    if found.is_reached:
        said = f"{found.url} answers at {found.address}."
        return Finding(settings.name, check, Verdict.OK, said)
    fix = _FIXES[found.failed_at]
    is_alone = service == "streams" and reached["dynamodb"].is_reached
    if is_alone and found.failed_at in (Step.DNS, Step.TCP):
        fix = _STREAMS_ALONE.format(region=settings.region)
    return Finding(settings.name, check, Verdict.FAILED, _unreached(found), fix)


def _of_clock(settings: Dataset, dates_ms: Sequence[int], wall_s: float) -> Finding:
    if not dates_ms:
        said = "No host has told AWS's time."
        return Finding(settings.name, "clock", Verdict.NOT_CHECKED, said)
    off_s = wall_s - max(dates_ms) / 1000
    way = "ahead of" if off_s > 0 else "behind"
    said = f"This host's clock is {abs(off_s):,.0f} s {way} AWS's."
    if abs(off_s) >= SKEW_REFUSED_S:
        fix = f"{CLOCK_HINT} Run chrony or systemd-timesyncd."
        return Finding(settings.name, "clock", Verdict.FAILED, said, fix)
    if abs(off_s) >= SKEW_NOTED_S:
        fix = "Run chrony or systemd-timesyncd; 5 minutes are refused."
        return Finding(settings.name, "clock", Verdict.NOTE, said, fix)
    return Finding(settings.name, "clock", Verdict.OK, "Within seconds of AWS's.")


def _unreached(found: Reach) -> str:
    what = {
        Step.DNS: "its name does not resolve",
        Step.TCP: f"no connection to {found.address}",
        Step.TLS: "TLS fails",
        Step.HTTP: "no HTTP answer",
        None: "it does not answer",
    }
    return f"{found.url} is not reached: {what[found.failed_at]} ({found.error})."


_STREAMS_ALONE: Final = (
    "DynamoDB answers and its streams do not: a gateway endpoint does not serve them. Make an "
    "interface endpoint for com.amazonaws.{region}.dynamodb-streams and set streams_endpoint_url "
    "to its DNS name (it has no private DNS); or open the way to this host. Where only the "
    "regional name is allowed out, set AWS_ACCOUNT_ID_ENDPOINT_MODE=disabled."
)
_FIXES: Final = {
    Step.DNS: "Check dynamodb_aws_region, endpoint_url and the resolver of this host.",
    Step.TCP: "Open port and route: security group, network ACL, route table, firewall.",
    Step.TLS: "Trust the certificate's issuer (AWS_CA_BUNDLE), or keep proxies out of TLS.",
    Step.HTTP: "Something listens there that is no AWS: check endpoint_url and proxies.",
    None: "Check endpoint_url and proxies.",
}
