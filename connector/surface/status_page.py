"""The page at `/`: its text, and the policy under which a browser runs it.

Owns the Content-Security-Policy, the runbook's too: exactly the one script and the one style of a
page may run, so a value from a table that found its way into the markup would still do nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources


@cache
def page_text() -> str:
    """The document, complete in itself."""
    return resources.files("connector.surface").joinpath("status_page.html").read_text("utf-8")


@cache
def page_headers() -> dict[str, str]:
    return policy_headers(page_text())


def policy_headers(page: str) -> dict[str, str]:
    """The headers of a page: it may run what is written in it, and ask this service alone."""
    policy = {
        "default-src": "'none'",
        "script-src": _allowed("script", page),
        "style-src": _allowed("style", page),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "cache-control": "no-store",
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def _allowed(tag: str, page: str) -> str:
    """Hashes of the page's own inline elements of that kind."""
    bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(body.encode()).digest()) for body in bodies)
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests) or "'none'"
