"""The checks that find a mutant: trial, days and audit in simulated time, otherwise a named test.

All run in the mutant's copy of the project. The checks themselves are never changed there: see
`mutant.JUDGES`.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: A mutant that takes longer hangs: the original crawler needs a hundredth of this.
_TIMEOUT_SECONDS: Final = 600.0
#: The error of simulated time about a crawl that never lets the clock advance.
ENDLESS: Final = "it never ends"
_GOOD: Final = ("pass", "holds")
#: The maximum number of characters shown of the message of a mutant that crashes.
_MAX_MESSAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Findings:
    """The verdict of each scenario, rule and row, by part; or how the mutant ended."""

    verdicts: dict[str, dict[str, str]]
    reasons: dict[str, str]  #: of the rows of the audit: its kinds of finding
    crash: str = ""

    def worse_than(self, control: "Findings") -> dict[str, list[str]]:
        """Return by part the verdicts that are good for the original crawler, but not here."""
        if self.crash:
            return {"trial": [f"crashed: {self.crash}"]}
        return {
            part: [
                " ".join(filter(None, [name, self.reasons.get(f"{part} {name}")]))
                for name, verdict in verdicts.items()
                if verdict in _GOOD and self.verdicts[part].get(name) not in _GOOD
            ]
            for part, verdicts in control.verdicts.items()
        }


def simulated(project: Path, folder: Path) -> Findings:
    """Run trial, days and audit of the project in one process."""
    command = ["-m", "tests.acceptance.crawls", str(folder), "trial", "days"]
    try:
        done = _run(project, *command)
    except subprocess.TimeoutExpired:
        return Findings({}, {}, ENDLESS)
    if done.returncode:
        return Findings({}, {}, ENDLESS if ENDLESS in done.stderr else _last_line(done.stderr))
    verdicts: dict[str, dict[str, str]] = {}
    reasons: dict[str, str] = {}
    for part in ("trial", "days"):
        for result in json.loads((folder / f"{part}.json").read_text("utf-8")):
            row = result["name"].removeprefix("row ")
            is_row = row != result["name"]
            name = f"{row} ({part})" if is_row else row
            verdicts.setdefault("attest" if is_row else part, {})[name] = result["verdict"]
            if is_row:
                reasons[f"attest {name}"] = result["reason"] or result["verdict"]
    return Findings(verdicts, reasons)


def failed_test(project: Path, tests: tuple[str, ...]) -> str:
    """Return the first of these tests that fails in the project, or nothing."""
    done = _run(project, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests)
    lines = done.stdout.splitlines()
    return next((line.split()[1] for line in lines if line.startswith(("FAILED", "ERROR"))), "")


def _run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=inherited | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MAX_MESSAGE] if lines else "no word"
