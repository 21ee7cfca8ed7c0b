"""The report of a benchmark: a line per subject, and with `--json` an object at the end.

With `--json` the lines go to stderr, so that stdout has only the object.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured value. With a peer, the goal is about the ratio of both values."""

    name: str
    value: float | None  #: None if it is unknown
    unit: str = ""
    peer: str = ""  #: the name of what to compare with: a peer or a bound
    peer_value: float | None = None  #: its value, in the same unit
    max_value: float | None = None  #: the goal: at most this value, or ratio
    min_value: float | None = None  #: the goal: at least this value, or ratio

    @property
    def ratio(self) -> float | None:
        """The value divided by the peer's value."""
        return self.value / self.peer_value if self.peer_value and self.value is not None else None

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None if there is none."""
        if self.max_value is None and self.min_value is None:
            return None
        value = self.ratio if self.peer else self.value
        return value is not None and not (
            (self.max_value is not None and value > self.max_value)
            or (self.min_value is not None and value < self.min_value)
        )

    def __str__(self) -> str:
        """Return the figure as text, with its goal."""
        text = f"{self.name} {_text(self.value, self.unit)}"
        if self.peer:
            peer_value = _text(self.peer_value, self.unit)
            text += f", {_text(self.ratio)} times {self.peer} ({peer_value})"
        if self.met is not None:
            bounds = (("at most", self.max_value), ("at least", self.min_value))
            goal = ", ".join(
                f"{word} {_text(bound)}" for word, bound in bounds if bound is not None
            )
            text += f" [goal: {goal}{'' if self.met else '; missed'}]"
        return text


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
        for figure in figures:
            derived = {"ratio": figure.ratio, "met": figure.met, "note": note}
            self._figures.append({"subject": subject, **asdict(figure), **derived})

    def add_peer(self, subject: str, *figures: Figure, note: str = "") -> None:
        """Do the same for a peer, without the goals."""
        self.add(
            subject,
            *(replace(figure, max_value=None, min_value=None) for figure in figures),
            note=note,
        )

    def end(self) -> bool:
        """Print the object, or the load of the machine. Return True if all goals were met."""
        load = {"before": self._load, "after": os.getloadavg()}
        met = [figure["met"] for figure in self._figures if figure["met"] is not None]
        result = {
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
            print(json.dumps(result, indent=1, allow_nan=False))
        else:
            self.say("load average: {before[0]:.1f} before, {after[0]:.1f} after".format(**load))
        return all(met)


def run(measure: Callable[..., None], *defaults: float, names: Collection[str] = ()) -> bool:
    """Run a benchmark with the arguments of the command line; return True if all goals were met.

    ``measure`` is called with a report, with a number for each of ``defaults``, and with those of
    ``names`` that were chosen. The docstring of its module is the help text.
    """
    benchmark = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark}",
        description=sys.modules[measure.__module__].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one object")
    numbers = list(signature(measure).parameters)[1 : len(defaults) + 1]
    for number, default in zip(numbers, defaults, strict=True):
        parser.add_argument(
            number,
            nargs="?",
            type=type(default),
            default=default,
            metavar=number.upper(),
            help=f"default: {default:,}",
        )
    if names:
        usage = f"one or more of {', '.join(names)} (default: all)"
        parser.add_argument("names", nargs="*", metavar="NAME", help=usage)
    options = vars(parser.parse_args())
    chosen = options.get("names", [])
    if unknown := sorted(set(chosen).difference(names)):
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(names)}")
    words = [word for word in sys.argv[1:] if word != "--json"]
    report = Report(benchmark, words, as_json=options["json"])
    measure(report, *(options[number] for number in numbers), *chosen)
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
