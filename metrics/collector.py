"""Whether somebody named an OpenTelemetry collector.

Apart from `metrics.otlp`, whose imports take a fifth of a second that most starts can do without.
"""

from __future__ import annotations

from collections.abc import Mapping

ENDPOINT_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)


def is_collector_named(environment: Mapping[str, str]) -> bool:
    """OpenTelemetry's own variables decide, and nothing else."""
    return any(environment.get(name) for name in ENDPOINT_VARIABLES)
