"""``walsh conformance -- COMMAND...``: a test for any crawler, and its scorecard."""

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
    """Try the command, print its scorecard, and return the exit status."""
    given, words = call.arguments, call.arguments.crawler
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        raise WrongCall("name the command to try: conformance -- COMMAND...")
    rules = None if given.rules is None else [word.strip() for word in given.rules.split(",")]
    try:
        card = trial.run(
            command,
            rules,
            user_agent=given.user_agent,
            proxy=given.proxy,
            patience=given.patience,
            told=lambda sentence: print(f"{sentence} ...", file=sys.stderr, flush=True),
        )
    except (trial.TrialError, ValueError) as error:
        fail(str(error), 2)  # the message may have lines of the crawler
    if given.json:
        print(json.dumps(card.as_dict(), indent=1).replace("\x7f", "\\u007f"))
    else:
        show(card)
    return 0 if card.keeps_what_was_tried else 1


def show(card: Scorecard) -> None:
    """Print a scorecard by rule in columns, then the findings and their log."""
    print_lines(align([("rule", *Verdict), *_rows(card)]))
    print_lines(_details(card))


def _rows(card: Scorecard) -> Iterator[tuple[str, ...]]:
    counts = card.by_rule()
    for rule in sorted(counts):
        yield (rule, *(str(counts[rule][verdict]) for verdict in Verdict))


def _details(card: Scorecard) -> Iterator[str]:
    """Yield the findings, failures first."""
    for verdict in (Verdict.FAIL, Verdict.NOT_RUN, Verdict.PASS, Verdict.NOT_APPLICABLE):
        if found := card.having(verdict):
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
    numbers = [(len(card.having(verdict)), verdict) for verdict in Verdict]
    told = ", ".join(f"{number} {verdict}" for number, verdict in numbers if number)
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
    head = f"{finding.verdict}: {scenario.rule} {scenario.name}"
    yield f"{head} ({scenario.level}): {scenario.asks}."
    if finding.verdict is not Verdict.PASS:
        yield f"    {_sentence(finding.reason)}"
    if finding.verdict is Verdict.FAIL:
        yield from (f"    {line}" for line in finding.lines)


def _sentence(reason: str) -> str:
    """Return a reason with a capital and a full stop; a name such as `robots.txt` stays."""
    is_word = re.match(r"[a-z]+(?![\w./:-])", reason)
    begin = reason[:1].upper() if is_word else reason[:1]
    return f"{begin}{reason[1:]}."
