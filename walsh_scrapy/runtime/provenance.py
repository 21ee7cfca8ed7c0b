"""Facts about a request that only our own parts can state (decision 30).

Scrapy's parts copy requests, and a copy takes its ``meta`` along. So do spiders and middlewares of
others, with any ``meta`` that they like. The facts of a request are therefore in a ticket in its
``meta``, which counts only where it was issued: for one URL and method, from the request to its
response. Retries and the copies of a scheduler are within that. A request for another URL is not,
nor one that a callback makes of the response's ``meta``. A ticket is never written to a ``JOBDIR``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request

_KEY: Final = "walsh_ticket"
_T = TypeVar("_T")


class _Life:
    """What a request shares with its copies: which of them got a response."""

    def __init__(self) -> None:
        self.answered: ref[Request] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    url: str
    method: str
    life: _Life
    facts: Mapping[type, Any]  # each by its class

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None where a request is written down, because anybody could have written it."""
        return type(None), ()


def find_fact(request: Request, kind: type[_T]) -> _T | None:
    """Return the fact of this class that our parts stated of a request, or None."""
    ticket = _ticket_of(request)
    return cast("_T | None", ticket.facts.get(kind)) if ticket else None


def state_fact(request: Request, fact: object) -> None:
    """State a fact of a request, in place of an earlier one of its class.

    Copies that were made before keep theirs.
    """
    ticket = _ticket_of(request)
    facts = {**ticket.facts, type(fact): fact} if ticket else {type(fact): fact}
    life = ticket.life if ticket else _Life()
    request.meta[_KEY] = _Ticket(request.url, request.method, life, facts)


def carry_facts(request: Request, following: Request) -> None:
    """State all facts of a request of the one that takes its place, whatever URL that has."""
    following.meta.pop(_KEY, None)
    if ticket := _ticket_of(request):
        for fact in ticket.facts.values():
            state_fact(following, fact)


def end_facts(request: Request) -> None:
    """Record that a request got its response: from now on its facts are not those of copies."""
    if ticket := _ticket_of(request):
        ticket.life.answered = ref(request)


def repeats(request: Request, following: Request) -> bool:
    """Return True if a request is a copy of an earlier one: same URL, method and ticket."""
    given, ticket = following.meta.get(_KEY), _ticket_of(request)
    return (
        ticket is not None
        and type(given) is _Ticket
        and given.life is ticket.life
        and (following.url, following.method) == (ticket.url, ticket.method)
    )


def _ticket_of(request: Request) -> _Ticket | None:
    ticket = request.meta.get(_KEY)
    # A subclass could say anything of itself.
    if type(ticket) is not _Ticket or (ticket.url, ticket.method) != (request.url, request.method):
        return None
    answered = ticket.life.answered
    return ticket if answered is None or answered() is request else None
