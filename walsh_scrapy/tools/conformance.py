"""What ``scrapy conformance`` prints: a table by rule, then what was found and the log of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.output import columns, print_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from walsh_scrapy.testing.conformance.scorecard import Result, Scorecard

_VERDICTS: Final = ("pass", "fail", "not applicable", "could not run")
_HEADINGS: Final = ("rule", *_VERDICTS)


def show(card: Scorecard, console: Console) -> None:
    """Print a scorecard: a table at a terminal, aligned columns in a pipe."""
    if console.is_terminal:
        console.print(_table(card))
    else:
        print_lines(columns([_HEADINGS, *_rows(card)]))
    print_lines(_details(card))  # not by the console, which would wrap the lines of the log


def _table(card: Scorecard) -> Table:
    table = Table(title="Scenarios by rule", title_justify="left")
    table.add_column("rule", no_wrap=True)
    for heading in _VERDICTS:
        table.add_column(heading, justify="right")
    for row in _rows(card):
        table.add_row(*row)
    return table


def _rows(card: Scorecard) -> Iterator[tuple[str, ...]]:
    counts = card.by_rule()
    for rule in sorted(counts):
        of_rule = {verdict.value: count for verdict, count in counts[rule].items()}
        yield (rule, *(str(of_rule.get(verdict, 0)) for verdict in _VERDICTS))


def _details(card: Scorecard) -> Iterator[str]:
    """Yield what was found, failures last: a terminal shows the end."""
    for verdict in ("pass", "could not run", "not applicable", "fail"):
        found = [each for each in card.results if each.finding.verdict.value == verdict]
        if found:
            yield ""
        for each in found:
            yield from _result(each)
    yield ""
    for call in card.calls:
        ended = "ended at its limit" if call.cut else f"exit status {call.exit_status}"
        requests = count_of(call.requests, "request")
        if call.daemons:
            left = count_of(call.daemons, "process", "processes")
            ended += f"; {left} that had left it ended too"
        yield f"{call.run} run: {requests} in {call.seconds:.1f} s, {ended}"
    agents = ", ".join(map(repr, card.user_agents[:3]))
    yield f"User-Agent: {agents}"
    yield verdict_of(card)


def verdict_of(card: Scorecard) -> str:
    """Return one sentence for the whole scorecard."""
    numbers = dict.fromkeys(_VERDICTS, 0)
    for each in card.results:
        numbers[each.finding.verdict.value] += 1
    told = ", ".join(f"{number} {verdict}" for verdict, number in numbers.items() if number)
    scenarios = f"{count_of(len(card.results), 'scenario')}{': ' * bool(told)}{told}."
    return f"{scenarios} {_conformance(card)}".rstrip()


def _conformance(card: Scorecard) -> str:
    if card.failed:
        return f"Not conformant: {_names(card.failed)}."
    if card.not_shown:
        return f"Conformance is not shown: nothing shows {_names(card.not_shown)}."
    return "Conformant: each MUST that applies passed." if card.is_conformant else ""


def _names(results: Sequence[Result]) -> str:
    return ", ".join(each.scenario.name for each in results)


def _result(result: Result) -> Iterator[str]:
    scenario, finding = result.scenario, result.finding
    head = f"{finding.verdict.value}: {scenario.rule} {scenario.name}"
    yield f"{head} ({scenario.level.value}): {scenario.asks}."
    if finding.verdict.value != "pass":
        yield f"    {finding.reason}."
    if finding.verdict.value == "fail":
        yield from (f"    {line}" for line in finding.lines)
