"""What ``walsh lint`` prints: a line for each finding, as compilers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.wording import counted
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.policy.robots.lint import Remark


def report(name: str, findings: Sequence[Remark]) -> Iterator[str]:
    """Yield a line for each finding in the file ``name``, and last how many there are."""
    for finding in findings:
        where = name if finding.line is None else f"{name}:{finding.line}"
        yield printable(f"{where}: {finding.level}: {finding.text}")
    errors = count_errors(findings)
    notes = len(findings) - errors
    yield printable(f"{name}: {counted(errors, 'error')}, {counted(notes, 'note')}")


def records(name: str, findings: Sequence[Remark]) -> Iterator[dict[str, Any]]:
    """Yield an object for each finding, for ``--json``."""
    for finding in findings:
        yield {"file": name, **finding._asdict()}


def count_errors(findings: Sequence[Remark]) -> int:
    """Return the number of findings that are errors."""
    return sum(finding.level == "error" for finding in findings)
