"""A politeness test for any crawler: whatever it is written in, it is a command that is called.

    card = run(["wget", "-i", "{seeds}"])
    assert card.is_conformant, card.failed

Nothing here knows the crawler of this package: the check shares no code with the crawler.
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
