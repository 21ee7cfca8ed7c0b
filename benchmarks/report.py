"""The report of a benchmark: one line per subject, or with `--json` one object at its end.

The lines then go to stderr, so that the object is alone on stdout.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured value. If there is a peer, the goal is for the ratio of both."""

    name: str
    value: float | None  #: None if it is not known
    unit: str = ""
    peer: str = ""  #: the value to compare with, or a bound
    peer_value: float | None = None  #: in the same unit
    most: float | None = None  #: the goal: at most so much
    least: float | None = None  #: the goal: at least so much

    @property
    def ratio(self) -> float | None:
        """The value divided by that of the peer."""
        return self.value / self.peer_value if self.peer_value and self.value is not None else None

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None if there is none."""
        if self.most is None and self.least is None:
            return None
        found = self.ratio if self.peer else self.value
        return found is not None and not (
            (self.most is not None and found > self.most)
            or (self.least is not None and found < self.least)
        )

    def __str__(self) -> str:
        """Return the figure for people."""
        said = f"{self.name} {_text(self.value, self.unit)}"
        if self.peer:
            beside = _text(self.peer_value, self.unit)
            said += f", {_text(self.ratio)} times {self.peer} ({beside})"
        if self.met is not None:
            bounds = (("at most", self.most), ("at least", self.least))
            goal = ", ".join(
                f"{word} {_text(bound)}" for word, bound in bounds if bound is not None
            )
            said += f" [goal: {goal}{'' if self.met else '; missed'}]"
        return said


class Report:
    """The figures of one benchmark, printed as they are measured."""

    def __init__(self, benchmark: str, words: Sequence[str], *, as_json: bool) -> None:
        self._out = sys.stderr if as_json else sys.stdout
        self._as_json = as_json
        self._began, self._load = time.time(), os.getloadavg()
        self._call = {"benchmark": benchmark, "arguments": list(words)}
        self._figures: list[dict[str, Any]] = []

    def say(self, text: str) -> None:
        """Print a line without a figure."""
        print(text, file=self._out, flush=True)

    def add(self, subject: str, *figures: Figure, note: str = "") -> None:
        """Print the figures of a subject on a line, and keep them for the object."""
        self.say(f"{subject}: {'; '.join([*map(str, figures), *filter(None, [note])])}")
        for each in figures:
            derived = {"ratio": each.ratio, "met": each.met, "note": note}
            self._figures.append({"subject": subject, **asdict(each), **derived})

    def add_peer(self, subject: str, *figures: Figure, note: str = "") -> None:
        """Do so for a peer; the goals are ours, and not its."""
        self.add(subject, *(replace(each, most=None, least=None) for each in figures), note=note)

    def end(self) -> bool:
        """Print the object, or the load of the machine; return whether each goal was met."""
        load = {"before": self._load, "after": os.getloadavg()}
        met = [each["met"] for each in self._figures if each["met"] is not None]
        found = {
            **self._call,
            "began": datetime.fromtimestamp(self._began, UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - self._began, 1),
            "machine": {
                "cores": os.cpu_count(),
                "cpu": _processor(),
                "python": platform.python_version(),
                "load": load,
            },
            "figures": self._figures,
            "met": all(met) if met else None,
        }
        if self._as_json:
            print(json.dumps(found, indent=1, allow_nan=False))
        else:
            self.say("load average: {before[0]:.1f} before, {after[0]:.1f} after".format(**load))
        return all(met)


def run(measure: Callable[..., None], *defaults: float) -> bool:
    """Call a benchmark's function with a report and the words of the command line.

    The first words are numbers instead of ``defaults``, the others stay words. Return whether each
    goal was met.
    """
    words = [word for word in sys.argv[1:] if word != "--json"]
    numbers = [type(each)(word) for each, word in zip(defaults, words, strict=False)]
    report = Report(Path(sys.argv[0]).stem, words, as_json="--json" in sys.argv)
    measure(report, *numbers, *defaults[len(numbers) :], *words[len(defaults) :])
    return report.end()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()  # Linux
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _text(value: float | None, unit: str = "") -> str:
    """Return a value with about three digits."""
    if value is None:
        return "unknown"
    digits = 0 if isinstance(value, int) or value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()
