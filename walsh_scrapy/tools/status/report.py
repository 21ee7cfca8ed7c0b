"""The findings as lines for an operator and a monitor, and as one JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.tools.printable import columns, printable
from walsh_scrapy.tools.status.findings import worst

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.tools.status.findings import Finding


def status_lines(findings: list[Finding]) -> Iterator[str]:
    """Yield the status of the whole, which a monitor shows, and then a line a finding."""
    status = worst(findings)
    trouble = ", ".join(each.check for each in findings if each.status)
    yield f"{status.name}: {trouble or 'all is well'}"
    yield from columns([_cells(each) for each in findings])


def status_json(findings: list[Finding], now: float) -> str:
    """Return the same as one JSON object on one line."""
    status = worst(findings)
    found = [
        {
            "status": each.status.name,
            "check": each.check,
            "what": printable(each.what),
            "advice": each.advice or None,
        }
        for each in findings
    ]
    whole = {"status": status.name, "exit": int(status), "at": rfc3339(now), "findings": found}
    return json.dumps(whole)


def _cells(finding: Finding) -> tuple[str, ...]:
    advice = f" ({finding.advice})" if finding.advice else ""
    return finding.status.name, finding.check, printable(finding.what) + advice
