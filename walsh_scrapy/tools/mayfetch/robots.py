"""What a robots.txt says of a URL to one bot, and what Protego says of it where that differs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from walsh_scrapy.policy.robots.quotation import usage_records
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.tools.mayfetch.answer import RobotsAnswer

if TYPE_CHECKING:
    from protego import Protego

    from walsh_scrapy.policy.robots.access import RobotsFile

#: What is wrong with an argument that no crawl may request (decision 16).
NO_URL = "this is not an http or https URL with a host"


def robots_answer(
    file: RobotsFile, url: str, user_agent: str, now: float, *, given: bool
) -> RobotsAnswer:
    """Return what a file says of ``url`` at an epoch second to the bot that it was read for.

    ``given`` is True for a file of the operator, which no host has yet.
    """
    verdict = file.rules.verdict(url)
    real = not file.is_replaced
    body = file.copy.body or b""
    return RobotsAnswer(
        origin=origin_of(url),
        fetched_at=None if given else file.copy.fetched_at,
        status=None if given else file.copy.status,
        group=file.rules.group if real else None,
        group_lines=file.rules.lines if real else (),
        rule=verdict.rule if real else None,
        line=verdict.line if real else None,
        crawl_delay=file.rules.crawl_delay,
        request_rate=file.rate(now),
        opens_in=file.closed_for(now),
        comments=file.rules.comments,
        ignored=tuple(f"line {line}: {what}" for line, what in file.rules.warnings),
        usage=tuple(f"line {line}: {text}" for line, text in usage_records(body)) if real else (),
        protego=_protego(body, url, user_agent, allowed=verdict.allowed) if real else None,
        why=file.why(verdict),
    )


def scheme_hint(text: str) -> str:
    """Return what to write instead of an address without a scheme; "" for anything else."""
    written = f"https://{text}"
    is_address = "://" not in text and "." in text.partition("/")[0] and is_web(written)
    return f"; write {written}" if is_address else ""


def is_web(url: str) -> bool:
    """Return True if a crawl may request this kind of URL at all (decision 16)."""
    return origin_of(url).startswith(("http://", "https://"))


def _protego(body: bytes, url: str, user_agent: str, *, allowed: bool) -> bool | None:
    """Return whether Protego allows a URL, if that is not our verdict; None if it agrees."""
    try:
        theirs = bool(_parser(body).can_fetch(url, user_agent))
    except ValueError:  # a number or a URL that it cannot read
        return None
    return None if theirs is allowed else theirs


@lru_cache(maxsize=1)
def _parser(body: bytes) -> Protego:
    from protego import Protego

    return Protego.parse(body.decode("utf-8", errors="ignore"))  # as Scrapy reads it
