"""``walsh conformance -- COMMAND...``: tests any crawler, and prints its scorecard."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.testing.conformance import trial
from walsh_scrapy.testing.conformance.scenario import Verdict
from walsh_scrapy.tools.call import WrongCall, fail
from walsh_scrapy.tools.show import align, print_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.testing.conformance.trial import Result, Scorecard
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Test the command, print its scorecard, and return the exit status."""
    arguments = call.arguments
    words = arguments.crawler
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        raise WrongCall("name the command to test: conformance -- COMMAND...")
    names = arguments.rules
    rules = None if names is None else [name.strip() for name in names.split(",")]
    try:
        card = trial.run(
            command,
            rules,
            user_agent=arguments.user_agent,
            proxy=arguments.proxy,
            patience=arguments.patience,
            on_progress=lambda sentence: print(f"{sentence} ...", file=sys.stderr, flush=True),
        )
    except (trial.TrialError, ValueError) as error:
        fail(str(error), 2)  # not WrongCall, because the message may have several lines
    if arguments.json:
        print(json.dumps(card.as_dict(), indent=1).replace("\x7f", "\\u007f"))
    else:
        show(card)
    return 0 if card.keeps_what_was_tried else 1


def show(card: Scorecard) -> None:
    """Print a table of the rules, then the findings with their log lines."""
    print_lines(align([("rule", *Verdict), *_rows_of(card)]))
    print_lines(_details_of(card))


def _rows_of(card: Scorecard) -> Iterator[tuple[str, ...]]:
    counts = card.by_rule()
    for rule in sorted(counts):
        yield (rule, *(str(counts[rule][verdict]) for verdict in Verdict))


def _details_of(card: Scorecard) -> Iterator[str]:
    """Yield the findings, failures first."""
    for verdict in (Verdict.FAIL, Verdict.NOT_RUN, Verdict.PASS, Verdict.NOT_APPLICABLE):
        if results := card.having(verdict):
            yield ""
        for result in results:
            yield from _lines_of(result)
    yield ""
    for call in card.calls:
        ended = "ended at its time limit" if call.cut else f"exit status {call.exit_status}"
        requests = count_of(call.requests, "request")
        if call.daemons:
            processes = count_of(call.daemons, "process", "processes")
            ended += f"; {processes} that it left running ended too"
        yield f"{call.run} run: {requests} in {call.seconds:.1f} s, {ended}"
    agents = ", ".join(map(repr, card.user_agents[:3]))
    yield f"User-Agent: {agents}"
    yield verdict_of(card)


def verdict_of(card: Scorecard) -> str:
    """Return one sentence for the whole scorecard."""
    numbers = [(len(card.having(verdict)), verdict) for verdict in Verdict]
    counts = ", ".join(f"{number} {verdict}" for number, verdict in numbers if number)
    scenarios = f"{count_of(len(card.results), 'scenario')}{': ' * bool(counts)}{counts}."
    return f"{scenarios} {_conformance(card)}".rstrip()


def _conformance(card: Scorecard) -> str:
    if card.failed:
        return f"Not conformant: {_names(card.failed)}."
    if card.not_shown:
        return f"Conformance is not shown: no verdict on {_names(card.not_shown)}."
    return "Conformant: each MUST that applies passed." if card.is_conformant else ""


def _names(results: Sequence[Result]) -> str:
    return ", ".join(result.scenario.name for result in results)


def _lines_of(result: Result) -> Iterator[str]:
    scenario = result.scenario
    finding = result.finding
    head = f"{finding.verdict}: {scenario.rule} {scenario.name}"
    yield f"{head} ({scenario.level}): {scenario.requirement}."
    if finding.verdict is not Verdict.PASS:
        yield f"    {_sentence(finding.reason)}"
    if finding.verdict is Verdict.FAIL:
        yield from (f"    {line}" for line in finding.lines)


def _sentence(reason: str) -> str:
    """Return a reason with a capital letter, unless it begins with a name, and a full stop."""
    is_word = re.match(r"[a-z]+(?![\w./:-])", reason)
    begin = reason[:1].upper() if is_word else reason[:1]
    return f"{begin}{reason[1:]}."
