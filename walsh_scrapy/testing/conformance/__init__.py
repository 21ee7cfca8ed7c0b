"""A politeness test for any crawler that can be run as a command.

    card = run(["wget", "-i", "{seeds}"])
    assert card.is_conformant, card.failed

The test serves simulated hosts on this machine, lets the command crawl them, and checks the log of
their servers. It shares no code with the crawler of this package.
"""

from walsh_scrapy.testing.conformance.scenario import Level, Run, Seen, TrialLog, Verdict
from walsh_scrapy.testing.conformance.trial import RULES, SCENARIOS, Scorecard, TrialError, run

__all__ = [
    "RULES",
    "SCENARIOS",
    "Level",
    "Run",
    "Scorecard",
    "Seen",
    "TrialError",
    "TrialLog",
    "Verdict",
    "run",
]
