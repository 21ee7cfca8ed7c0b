"""``walsh lint``: mistakes in a robots.txt."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from walsh_scrapy.policy.robots.robotslint import lint
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.output import read_file
from walsh_scrapy.tools.show import print_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.policy.robots.robotslint import Finding
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Print the findings; return 1 if one is an error."""
    files = [(name, lint(read_file(name))) for name in call.arguments.file]
    if call.arguments.json:
        rows = (
            {"file": name, **asdict(finding)} for name, findings in files for finding in findings
        )
        print_lines(map(json.dumps, rows))
    else:
        print_lines(line for name, findings in files for line in report(name, findings))
    severities = {finding.severity for _, findings in files for finding in findings}
    return 1 if "error" in severities else 0


def report(name: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a line for each finding in the file ``name``, and then the number of findings."""
    for finding in findings:
        where = name if finding.line is None else f"{name}:{finding.line}"
        yield f"{where}: {finding.severity}: {finding.text}"
    errors = sum(finding.severity == "error" for finding in findings)
    yield f"{name}: {count_of(errors, 'error')}, {count_of(len(findings) - errors, 'note')}"
