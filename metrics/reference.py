"""docs/metrics.md, written from the catalog.

Run as `python -m metrics.reference > docs/metrics.md`; a test holds the file to it.
"""

from __future__ import annotations

import sys

from metrics.catalog import CATALOG, Instrument

_HEAD = """\
# Metrics

`GET /metrics` answers in the Prometheus text format, and in OpenMetrics when the `Accept` header
asks for `application/openmetrics-text`. It needs no token.

The label `name` is the dataset. All counters of a configured dataset exist from the start with the
value 0, so `rate()` and `increase()` miss nothing. A gauge that is not known yet is absent. The
number of series depends on the configuration alone, never on tables, shards or keys.

With OTEL_EXPORTER_OTLP_ENDPOINT set, the same metrics and the spans of `runtime.task_history` are
also sent to an OpenTelemetry collector, every 15 s over OTLP/HTTP; `pip install 'dynaduck[otlp]'`
brings what sends. OpenTelemetry's other variables (headers, certificate, compression) hold too.

This page is written from `metrics/catalog.py` by `python -m metrics.reference`.
"""


def _row(instrument: Instrument) -> str:
    labels = ", ".join(
        f"`{label}`" + (f" ({', '.join(values)})" if values else "")
        for label, values in instrument.labels
    )
    return (
        f"| `{instrument.name}` | {instrument.kind.value} | {instrument.unit} "
        f"| {labels or '-'} | {instrument.help} |"
    )


def metrics_page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for title, per_dataset in (("Of each dataset", True), ("Of the process", False)):
        parts.append(f"## {title}\n")
        parts.append("| name | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |")
        parts.append("\n".join(_row(i) for i in CATALOG if i.is_per_dataset is per_dataset) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
