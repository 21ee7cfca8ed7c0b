"""A long run of one target: documents that reach new lines of code are kept and changed further."""

import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Target

#: CPU-seconds that one document of at most 64 KiB may take, and after which it is given up.
SLOW = 1.0
HANGS = 20.0
#: CPU-seconds for making a finding smaller.
_SHRINKING = 10.0


class Hanging(BaseException):
    """A document was given up. No handler of an ordinary exception catches it."""


@dataclass
class Coverage:
    """The lines of our package that ran. Each is reported once, so it costs next to nothing."""

    lines: set[tuple[str, int]] = field(default_factory=set)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count lines; without effect before Python 3.12, which cannot."""
        if sys.version_info < (3, 12):
            yield
            return
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "tests.fuzz")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        try:
            yield
        finally:
            monitoring.free_tool_id(monitoring.COVERAGE_ID)

    def _line(self, code: CodeType, line: int) -> object:
        if "/walsh_scrapy/" in code.co_filename:
            self.lines.add((code.co_filename, line))
        return sys.monitoring.DISABLE

    def possible(self) -> int:
        """Return how many lines the functions of the modules have, of which a line ran."""
        return sum(map(_lines_of_functions, {name for name, _ in self.lines}))


def _lines_of_functions(name: str) -> int:
    module = compile(Path(name).read_text("utf-8"), name, "exec")
    return len({line for code in _functions(module) for *_, line in code.co_lines() if line})


def _functions(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                yield each
            yield from _functions(each)


@dataclass
class Campaign:
    """Runs a target on documents by chance, from a seed, and collects what it finds."""

    target: Target
    seeds: tuple[bytes, ...]
    random: Random
    coverage: Coverage = field(default_factory=Coverage)
    executions: int = 0
    slowest: float = 0.0
    findings: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.corpus = list(self.seeds)
        self._mutator = Mutator(self.seeds, self.random)

    def run(self, seconds: float) -> None:
        """Try the seeds, then documents made of them, for so many seconds."""
        end = time.monotonic() + seconds
        signal.signal(signal.SIGVTALRM, _give_up)
        with self.coverage.measured():
            for seed in self.seeds:
                self._try(seed)
            while time.monotonic() < end:
                body, known = self._mutator.mutated(self.corpus), len(self.coverage.lines)
                self._try(body)
                if len(self.coverage.lines) > known:
                    self.corpus.append(body)

    def _try(self, body: bytes) -> None:
        self.executions += 1
        why = self._flaw(body)
        if why and why not in self.findings:
            self.findings[why] = self._smaller(body, why)

    def _flaw(self, body: bytes) -> str | None:
        """Return what a document is a finding for: the exception and where it came from."""
        start = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, HANGS)
        try:
            self.target.check(body)
        except Hanging:
            return f"takes more than {HANGS:g} CPU-seconds"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} in {frame.name}: {frame.line}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took = time.process_time() - start
        self.slowest = max(self.slowest, took)
        return f"takes more than {SLOW:g} CPU-second" if took > SLOW else None

    def _smaller(self, body: bytes, why: str) -> bytes:
        """Return a shorter document with the same flaw."""
        end, size = time.process_time() + _SHRINKING, len(body) // 2
        while size:
            start = 0
            while start < len(body):
                if time.process_time() > end:
                    return body
                shorter = body[:start] + body[start + size :]
                if self._flaw(shorter) == why:
                    body = shorter
                else:
                    start += size
            size //= 2
        return body


def _give_up(*_: object) -> None:
    raise Hanging
