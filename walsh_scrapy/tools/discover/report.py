"""What ``scrapy discover`` prints: sources as TOML tables, and the rest as TOML comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.wording import counted
from walsh_scrapy.sources import Source
from walsh_scrapy.tools.discover.toml import comment, source_table, toml_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.tools.discover.candidates import Candidate, SiteOffer
    from walsh_scrapy.tools.mayfetch.answer import Answer
    from walsh_scrapy.tools.mayfetch.explainer import Explainer

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


def report_lines(offers: Iterable[SiteOffer], explainer: Explainer, now: float) -> Iterator[str]:
    """Yield the sources to declare as TOML, and what was requested for them as comments.

    Where two URLs lead to the same document, only the first is a source; the other is a comment.
    """
    declared: dict[str, str] = {}
    for number, offer in enumerate(offers):
        if number:
            yield ""
        yield from map(comment, _requested(offer, explainer, now))
        if offer.source is None:
            yield comment(_UNSURE if offer.is_usable is None else _NOTHING)
            if offer.is_usable is False:
                yield comment(f"try this: {TRY}")
        elif (first := declared.setdefault(offer.choices[0].url, offer.url)) != offer.url:
            yield from _commented(f"the same as {first}, so declare one of them:", offer.source)
        else:
            yield from source_table(offer.source)
        for why, source in _alternatives(offer):
            yield from _commented(why, source)


def as_dict(offer: SiteOffer, explainer: Explainer) -> dict[str, Any]:
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
        "gates": [answer.as_dict() for answer in _answers(offer, explainer)],
    }


def _requested(offer: SiteOffer, explainer: Explainer, now: float) -> Iterator[str]:
    """Yield what the gates say, and the outcome of each candidate."""
    page, *others = _answers(offer, explainer)
    yield from page.lines(now)
    for answer in others:
        yield next(answer.lines(now))
        yield f"  {answer.gate or 'robots':<11}{answer.why}"
    for each in offer.candidates:
        yield f"  {each.role:<11}{_outcome(each)}"


def _answers(offer: SiteOffer, explainer: Explainer) -> list[Answer]:
    """Return what the gates say of the page, of its feeds, and of the llms.txt if that counts."""
    asked = (each.url for each in offer.candidates if each.role == "llms.txt" or each.requested)
    announced = {each.url for each in offer.announced}
    urls = dict.fromkeys((offer.url, *asked))
    return [explainer.explain(url) for url in urls if url not in announced]


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
    """Return the media type that a page declares for a feed, and of what it is."""
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
        parts.append(counted(candidate.entries, *nouns))
    where = f" (by redirect, at {candidate.redirected_to})" if candidate.redirected_to else ""
    return f"{mark}{candidate.url}: {', '.join(parts)}{where}"


def _commented(why: str, source: Source) -> Iterator[str]:
    yield comment(why)
    yield from map(comment, source_table(source))
