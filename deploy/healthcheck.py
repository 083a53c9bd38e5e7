"""Exit status 0 while the service in this container answers /health; for images without curl."""

from __future__ import annotations

import http.client
import os
import sys

PATH = "/health"
TIMEOUT_S = 2.0


def is_alive(port: int) -> bool:
    """Whether something on loopback answers 200; /health needs no token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", PATH)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    port = os.environ.get("DYNADUCK_HTTP__PORT") or os.environ.get("DYNADUCK_RUNTIME__HTTP__PORT")
    sys.exit(0 if is_alive(int(port or 8090)) else 1)
