"""What an examination found, and how a person or a program reads it.

Owns the finding and its three forms: a table on a terminal, plain lines elsewhere, JSON. Must not
know how anything is found out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text


class Verdict(StrEnum):
    """A NOTE is worth knowing and stops nothing; NOT_CHECKED could not be found out."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` is the dataset, or `runtime`; `check` is a stable code; `fix` is what to do."""

    subject: str
    check: str
    verdict: Verdict
    sentence: str
    fix: str = ""


_STYLES: Final = {
    Verdict.OK: ("ok", "green"),
    Verdict.NOTE: ("note", "yellow"),
    Verdict.FAILED: ("FAILED", "bold red"),
    Verdict.NOT_CHECKED: ("not checked", "dim"),
}


def failures(findings: Sequence[Finding]) -> int:
    return sum(finding.verdict is Verdict.FAILED for finding in findings)


def show(
    findings: Sequence[Finding], out: TextIO, *, as_json: bool, mask: Callable[[str], str] = str
) -> None:
    """Writes them all; `mask` takes secrets out of each sentence."""
    if as_json:
        out.write(json.dumps(document(findings, mask), indent=2) + "\n")
    elif out.isatty():
        _show_tables(findings, out, mask)
    else:
        _show_lines(findings, out, mask)


def document(findings: Sequence[Finding], mask: Callable[[str], str] = str) -> dict[str, Any]:
    """`{"ok": …, "checks": [{"subject", "check", "verdict", "sentence", "fix"}, …]}`."""
    return {
        "ok": not failures(findings),
        "checks": [
            {
                "subject": finding.subject,
                "check": finding.check,
                "verdict": finding.verdict.value,
                "sentence": mask(finding.sentence),
                "fix": mask(finding.fix),
            }
            for finding in findings
        ],
    }


def _summary(findings: Sequence[Finding]) -> str:
    failed = failures(findings)
    if failed:
        return f"{failed} of {len(findings)} checks failed."
    open_checks = sum(finding.verdict is Verdict.NOT_CHECKED for finding in findings)
    rest = f", {open_checks} could not be made" if open_checks else ""
    return f"{len(findings)} checks, none failed{rest}."


def _show_lines(findings: Sequence[Finding], out: TextIO, mask: Callable[[str], str]) -> None:
    for subject, group in groupby(findings, key=lambda finding: finding.subject):
        out.write(f"{subject}\n")
        for finding in group:
            label, _ = _STYLES[finding.verdict]
            out.write(f"  {label:<12}{finding.check:<17}{mask(finding.sentence)}\n")
            if finding.fix:
                out.write(f"  {'':<12}{'':<17}fix: {mask(finding.fix)}\n")
    out.write(_summary(findings) + "\n")


def _show_tables(findings: Sequence[Finding], out: TextIO, mask: Callable[[str], str]) -> None:
    console = Console(file=out, highlight=False)
    for subject, group in groupby(findings, key=lambda finding: finding.subject):
        table = Table(title=subject, title_justify="left", title_style="bold", show_header=False)
        for _ in range(3):
            table.add_column()
        for finding in group:
            label, style = _STYLES[finding.verdict]
            said = Text(mask(finding.sentence))
            if finding.fix:
                said.append("\n" + mask(finding.fix), style="cyan")
            table.add_row(Text(label, style=style), finding.check, said)
        console.print(table)
    console.print(_summary(findings), style="bold red" if failures(findings) else "bold green")
