"""All scenarios, in the order of their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance import (
    backoff,
    formats,
    identity,
    optouts,
    pacing,
    revisits,
    robotsanswers,
    robotsrules,
    scope,
    signing,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from walsh_scrapy.testing.conformance.scenario import Scenario

_ROOMS: Final = (
    identity,
    signing,
    robotsanswers,
    robotsrules,
    optouts,
    pacing,
    backoff,
    scope,
    revisits,
    formats,
)
SCENARIOS: Final[tuple[Scenario, ...]] = tuple(each for room in _ROOMS for each in room.SCENARIOS)
RULES: Final = tuple(sorted({each.rule for each in SCENARIOS}))


def chosen(wanted: Collection[str] | None = None) -> tuple[Scenario, ...]:
    """Return the scenarios of these rules ("R4"), or those of these names; all without any.

    Raises ValueError for a word that is neither.
    """
    if wanted is None:
        return SCENARIOS
    names = {each.name for each in SCENARIOS}
    if unknown := sorted(set(wanted) - names - set(RULES)):
        raise ValueError(f"no such rule or scenario: {', '.join(unknown)}")
    return tuple(each for each in SCENARIOS if {each.rule, each.name} & set(wanted))
