"""What an offer says: the sources to declare, as TOML tables and comments or as one choice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.tools.discover.candidates import Candidate, SiteOffer

#: What to try where a page declares nothing.
TRY: Final = (
    "open the page in a browser, look for a link named RSS, Atom or Feed, and give its URL; many "
    "sites have a feed at /feed, /feed.xml, /rss.xml, /atom.xml or /index.xml"
)
_NOTHING: Final = (
    "nothing found: the page as markdown or as a feed, what its headers and its HTML head declare, "
    "and /llms.txt were requested, as far as the gates allow it; nothing else of the page is read"
)
_UNSURE: Final = "cannot say: what is marked with ? may have another outcome later"


def report_lines(offers: Iterable[SiteOffer]) -> Iterator[str]:
    """Yield the sources to declare as TOML, and what was requested for them as comments.

    Where two URLs lead to the same document, only the first is a source; the other is a comment.
    """
    declared: dict[str, str] = {}
    for number, offer in enumerate(offers):
        if number:
            yield ""
        for each in offer.candidates:
            yield comment(f"{each.role:<10}{_outcome(each)}")
        if offer.source is None:
            yield comment(_UNSURE if offer.is_usable is None else _NOTHING)
            if offer.is_usable is False:
                yield comment(f"try this: {TRY}")
        elif (first := declared.setdefault(offer.choices[0].url, offer.url)) != offer.url:
            yield from _comment_lines(f"the same as {first}, so declare one of them:", offer.source)
        else:
            yield from source_table(offer.source)
        for why, source in _alternatives(offer):
            yield from _comment_lines(why, source)


def as_dict(offer: SiteOffer) -> dict[str, Any]:
    """Return an offer for ``--json``."""
    source = offer.source
    return {
        "url": offer.url,
        "usable": offer.is_usable,
        "source": None
        if source is None
        else {"url": source.url, "kind": source.kind, "name": source.name},
        "documents": [
            {
                "role": each.role,
                "url": each.url,
                "asked": each.requested,
                "form": each.form,
                "type": each.link.media_type if each.link else None,
                "title": each.title,
                "entries": each.entries,
                "redirected_to": each.redirected_to,
                "came": each.outcome,
            }
            for each in offer.candidates
        ],
    }


def _alternatives(offer: SiteOffer) -> Iterator[tuple[str, Source]]:
    """Yield other sources that could be declared instead, each after a line that says why."""
    for each in offer.usable:
        if each is offer.choices[0]:
            continue
        if each.form == "feed":
            yield (
                f"or this feed, which the page declares too, {kind_of(each)}:",
                offer.source_of(each),
            )
        else:
            source = Source(each.url, "llms", each.title)
            yield f"or this instead, its {each.role}:", source


def kind_of(candidate: Candidate) -> str:
    """Return the media type that a page declares for a feed, and whether it is of comments."""
    link = candidate.link
    if link is None:
        return "a feed"
    return f"{link.media_type}, of comments" if link.is_of_comments else link.media_type


def _outcome(candidate: Candidate) -> str:
    mark = "? " if candidate.unsure else ""
    parts = [candidate.outcome]
    if candidate.link:
        parts = [f"{kind_of(candidate)}: {candidate.outcome}"]
    if candidate.form:
        nouns = ("entry", "entries") if candidate.form == "feed" else ("link", "links")
        parts.append(toml_string(candidate.title) if candidate.title else "without a title")
        parts.append(count_of(candidate.entries, *nouns))
    where = f" (by redirect, at {candidate.redirected_to})" if candidate.redirected_to else ""
    return f"{mark}{candidate.url}: {', '.join(parts)}{where}"


def _comment_lines(why: str, source: Source) -> Iterator[str]:
    yield comment(why)
    yield from map(comment, source_table(source))


def source_table(source: Source) -> Iterator[str]:
    """Yield a source as a table of ``sources.toml``; kind "feed" is the default there."""
    yield "[[source]]"
    yield f"url = {toml_string(source.url)}"
    if source.kind != "feed":
        yield f"kind = {toml_string(source.kind)}"
    if source.name:
        yield f"name = {toml_string(source.name)}"


def toml_string(text: str) -> str:
    r"""Return a text as a TOML basic string that is safe for a terminal.

    Control characters and direction marks are written as `\u009b`. A lone surrogate, which no TOML
    file can hold, becomes a replacement character.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(map(_escape, json.dumps(whole, ensure_ascii=False)))


def comment(line: str) -> str:
    """Return a line as a TOML comment that is safe for a terminal."""
    return f"# {printable(line)}".rstrip()


def _escape(character: str) -> str:
    return character if printable(character) == character else f"\\u{ord(character):04x}"


class Choice(NamedTuple):
    """The source to declare for a URL; None with the lines that say why there is none."""

    source: Source | None
    lines: tuple[str, ...] = ()  #: for the operator


def choose(offer: SiteOffer) -> Choice:
    """Return the source that an offer stands for.

    A feed is itself. Any other page stands for the one feed that it declares, feeds of comments
    apart, or else for its markdown or its llms.txt. Where it declares several feeds, the operator
    has to choose.
    """
    choices = offer.choices
    if len(choices) > 1:
        head = f"{offer.url} declares several feeds; give the URL of one to add it:"
        return Choice(None, (head, *map(_candidate_line, offer.feeds)))
    unsure = any(each.unsure for each in offer.feeds) and not offer.has_feed
    if choices and not unsure:
        return Choice(_with_short_name(offer.source_of(choices[0])), tuple(_others(offer)))
    unsure = unsure or offer.is_usable is None
    head = (
        "cannot say yet what is there" if unsure else f"nothing to declare was found there; {TRY}"
    )
    tried = (f"  {each.url}: {each.outcome}" for each in offer.candidates if each.requested)
    return Choice(None, (f"{offer.url}: {head}", *tried))


def _others(offer: SiteOffer) -> Iterator[str]:
    """Yield the other feeds that a page declares, which were left out."""
    others = [each for each in offer.feeds if each not in offer.choices]
    if others:
        yield f"{offer.url} declares these feeds too, which were not added:"
        yield from map(_candidate_line, others)


def _candidate_line(candidate: Candidate) -> str:
    title = f" {candidate.title!r}" if candidate.title else ""
    return f"  {candidate.url}{title} ({kind_of(candidate)})"


def _with_short_name(source: Source) -> Source:
    """Return the source with its title on one line, as every format can hold it."""
    if source.name is None:
        return source
    return replace(source, name=" ".join(printable(source.name).split()) or None)
