"""The Recorder as text: Prometheus' own format, or OpenMetrics where the Accept header asks for it.

Owns the choice of format and nothing else.
"""

from __future__ import annotations

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from metrics.recorder import Recorder


class PrometheusExporter:
    """Renders one Recorder. Thread-safe: every call takes its own picture of the values."""

    def __init__(self, recorder: Recorder) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(recorder)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The body, and the content type to send with it."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
