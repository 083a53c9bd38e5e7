"""Interim HTTP surface until the real one is wired."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connector.service import Service
from metrics.prometheus import PrometheusExporter


def start(service: Service) -> uvicorn.Server:
    exporter = PrometheusExporter(service.recorder)

    def headers() -> dict[str, str]:
        import datetime

        states = [r.health.state.value for r in service.replications]
        covered = [r.health.covered_until_ms for r in service.replications]
        out = {"X-Dynaduck-State": "Ready" if all(s == "Ready" for s in states) else next(s for s in states if s != "Ready")}
        if all(c is not None for c in covered):
            at = min(c for c in covered if c is not None)
            out["X-Dynaduck-As-Of"] = datetime.datetime.fromtimestamp(at / 1000, datetime.UTC).isoformat().replace("+00:00", "Z")
        return out

    def health(request: Request) -> Response:
        return JSONResponse({"alive": True})

    def document(r: Any) -> dict[str, Any]:
        return {
            "name": r.name, "state": r.health.state.value, "lag_ms": r.health.lag_sum_ms, "lag_max_ms": r.health.lag_max_ms,
            "reasons": [{"code": x.code, "message": x.sentence, "remedy": x.remedy} for x in r.health.reasons],
        }

    def ready(request: Request) -> Response:
        ok = all(r.health.is_ready for r in service.replications)
        return JSONResponse({"ready": ok, "datasets": [document(r) for r in service.replications]}, 200 if ok else 503)

    def metrics(request: Request) -> Response:
        body, kind = exporter.render(request.headers.get("accept", ""))
        return Response(body, media_type=kind)

    def run(query: str, accept: str) -> Response:
        cursor = service.database.cursor()
        try:
            cursor.execute(query)
            table = cursor.to_arrow_table()
        except Exception as error:
            return JSONResponse({"error": str(error)}, 400)
        finally:
            cursor.close()
        if "arrow" in accept:
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, table.schema) as w:
                w.write_table(table)
            return Response(sink.getvalue(), media_type="application/vnd.apache.arrow.stream", headers=headers())
        return Response(json.dumps(table.to_pylist(), default=str), media_type="application/json", headers=headers())

    async def sql(request: Request) -> Response:
        import anyio

        query = (await request.body()).decode()
        return await anyio.to_thread.run_sync(run, query, request.headers.get("accept", ""))

    app = Starlette(routes=[Route("/health", health), Route("/v1/ready", ready), Route("/v1/status", ready), Route("/metrics", metrics), Route("/v1/sql", sql, methods=["POST"])])
    http = service.config.runtime.http
    server = uvicorn.Server(uvicorn.Config(app, host=http.host, port=http.port, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    return server
