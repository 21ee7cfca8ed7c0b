"""The offer of a site for a crawl: its documents, their outcomes, and the source to declare."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from walsh_scrapy.metadata.alternates import is_llmstxt
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.sources.source import Source, SourcesError, declared_urls, target_url
from walsh_scrapy.tools.call import WrongCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.metadata.alternates import FeedLink
    from walsh_scrapy.metadata.entries import Feed

#: The advice where a page declares nothing.
FEED_ADVICE: Final = (
    "open the page in a browser, look for a link named RSS, Atom or Feed, and give its URL; many "
    "sites have a feed at /feed, /feed.xml, /rss.xml, /atom.xml or /index.xml"
)
_NOTHING: Final = (
    "nothing found: the page as markdown or as a feed, the feeds of its headers and its HTML head, "
    "and /llms.txt were requested, as far as the gates allow it; nothing else of the page is read"
)
_UNSURE: Final = "cannot say: those with ? may have another outcome later"
Role = Literal["page", "feed", "llms.txt"]
Form = Literal["feed", "markdown"]


@dataclass(slots=True)
class Candidate:
    """A document that a crawl might use, and the outcome of the request for it."""

    url: str
    role: Role
    requested: bool = False
    outcome: str = "not requested"  #: a few words, partly those of the server
    form: Form | None = None  #: None: nothing that a crawl could use
    title: str | None = None
    entries: int = 0  #: entries of a feed, links of a markdown document
    redirected_to: str | None = None
    unsure: bool = False  #: True if a later request may have another outcome
    link: FeedLink | None = None  #: the link of the page to a feed that it declares
    entry_urls: frozenset[str | None] = frozenset()

    def mark_requested(self) -> bool:
        """Mark the document as requested; return False if it was already.

        Several sites of one host share its llms.txt, which is requested once.
        """
        first, self.requested = not self.requested, True
        if first:
            self.end("requested, without a response", unsure=True)
        return first

    def found(self, feed: Feed, form: Form, url: str) -> None:
        """Keep the feed in the response of ``url``."""
        self.form, self.title, self.entries = form, feed.title or self.title, len(feed.entries)
        self.entry_urls = frozenset(entry.url for entry in feed.entries)
        self.redirected_to = None if url == self.url else url
        self.end(form)

    def end(self, outcome: str, *, unsure: bool = False) -> None:
        """Set the outcome."""
        self.outcome, self.unsure = outcome, unsure


@dataclass(slots=True)
class SiteOffer:
    """The offer of a site for one URL that an operator would like to declare."""

    url: str
    page: Candidate
    llms_txt: Candidate  #: of the host; other offers may share it
    feeds: tuple[Candidate, ...] = ()  #: the feeds that its headers and its head declare

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return each candidate once, in the order in which a crawl prefers them (R9).

        If the page is a feed it is the only one. An llms.txt is for sites without a feed.
        """
        others: tuple[Candidate, ...] = ()
        if self.page.form != "feed":
            others = self.feeds
            if not self.has_feed:
                others = (*self.feeds, self.page, self.llms_txt)
        return tuple({each.url: each for each in (self.page, *others)}.values())

    @property
    def has_feed(self) -> bool:
        """Whether a document that the page declares as a feed is one."""
        return any(each.form == "feed" for each in self.feeds)

    @property
    def usable(self) -> tuple[Candidate, ...]:
        """Return the candidates that a crawl could use, the best first; each document once."""
        usable = (each for each in self.candidates if each.form is not None)
        found: dict[str, Candidate] = {}
        for each in sorted(usable, key=lambda each: each.form != "feed"):
            found.setdefault(canonical_url(each.redirected_to or each.url), each)
        return tuple(found.values())

    @property
    def choices(self) -> tuple[Candidate, ...]:
        """Return the documents between which the operator must choose; one if there is no choice.

        Feeds of comments are a choice only if there is no other feed. Feeds that have the same
        entries, such as one feed as RSS and as Atom, are one choice.
        """
        feeds = [each for each in self.usable if each.form == "feed"]
        main = [each for each in feeds if not (each.link and each.link.is_of_comments)] or feeds
        different: dict[object, Candidate] = {}
        for each in main:
            different.setdefault(each.entry_urls or each.url, each)
        return tuple(different.values()) or self.usable[:1]

    @property
    def is_usable(self) -> bool | None:
        """Return True if a crawl could use any candidate; None if that is not known now."""
        if self.usable:
            return True
        return None if any(each.unsure for each in self.candidates) else False

    @property
    def source(self) -> Source | None:
        """Return the source to declare, or None if no candidate is usable.

        Its URL is that of the feed; for markdown it is the one that the operator gave. A crawl
        finds the best document from there, and a better one if the site offers it later.
        """
        return self.source_of(self.choices[0]) if self.choices else None

    def source_of(self, candidate: Candidate) -> Source:
        """Return the source to declare for the best document, or for a feed."""
        if candidate.form == "feed":
            return Source(candidate.url, "feed", candidate.title)
        return Source(self.url, "llms", candidate.title)


def offers_for(urls: Iterable[str]) -> tuple[SiteOffer, ...]:
    """Return an offer, with nothing requested yet, for each different URL.

    Raises WrongCall for a URL that cannot be declared.
    """
    llms_txts: dict[str, Candidate] = {}
    try:
        addresses = dict.fromkeys(target_url(url) for url in urls)
    except SourcesError as error:
        raise WrongCall(str(error)) from error
    return tuple(_offer(url, llms_txts) for url in addresses)


def _offer(url: str, llms_txts: dict[str, Candidate]) -> SiteOffer:
    *_, address = declared_urls(Source(url, "llms"))
    is_llms_txt = is_llmstxt(url)
    if is_llms_txt:
        address = url
    llms_txt = llms_txts.setdefault(address, Candidate(address, "llms.txt"))
    return SiteOffer(url, llms_txt if is_llms_txt else Candidate(url, "page"), llms_txt)


# ---- as text and as JSON ----


def report_lines(offers: Iterable[SiteOffer]) -> Iterator[str]:
    """Yield the sources to declare as TOML, and the requests for them as comments.

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
                yield comment(f"try this: {FEED_ADVICE}")
        elif (first := declared.setdefault(offer.choices[0].url, offer.url)) != offer.url:
            yield comment(f"the same as {first}, so declare one of them:")
            yield from map(comment, source_table(offer.source))
        else:
            yield from source_table(offer.source)
        for why, source in _alternatives(offer):
            yield from map(comment, (why, *source_table(source)))


def as_dict(offer: SiteOffer) -> dict[str, Any]:
    """Return an offer for ``--json``."""
    source = offer.source
    return {
        "url": offer.url,
        "usable": offer.is_usable,
        "source": source and {name: getattr(source, name) for name in ("url", "kind", "name")},
        "documents": [
            {
                "role": each.role,
                "url": each.url,
                "requested": each.requested,
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
    """Yield other sources that could be declared instead, each after a line with the reason."""
    for each in offer.usable:
        if each is offer.choices[0]:
            continue
        if each.form == "feed":
            why = f"or this feed, which the page declares too, {_kind_of(each)}:"
            yield why, offer.source_of(each)
        else:
            yield f"or this instead, its {each.role}:", Source(each.url, "llms", each.title)


def _kind_of(candidate: Candidate) -> str:
    """Return the media type that a page declares for a feed, and whether it is of comments."""
    link = candidate.link
    if link is None:
        return "a feed"
    return f"{link.media_type}, of comments" if link.is_of_comments else link.media_type


def _outcome(candidate: Candidate) -> str:
    mark = "? " if candidate.unsure else ""
    kind = f"{_kind_of(candidate)}: " if candidate.link else ""
    parts = [kind + candidate.outcome]
    if candidate.form:
        nouns = ("entry", "entries") if candidate.form == "feed" else ("link", "links")
        parts.append(toml_string(candidate.title) if candidate.title else "without a title")
        parts.append(count_of(candidate.entries, *nouns))
    where = f" (by redirect, at {candidate.redirected_to})" if candidate.redirected_to else ""
    return f"{mark}{candidate.url}: {', '.join(parts)}{where}"


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


def choose(offer: SiteOffer) -> tuple[Source | None, list[str]]:
    """Return the source that an offer stands for, and lines for the operator.

    A feed is itself. Any other page stands for the one feed that it declares, feeds of comments
    apart, or else for its markdown or its llms.txt. Where it declares several feeds, the operator
    must choose; there is no source then, and the lines explain that.
    """
    choices = offer.choices
    requested = [each for each in offer.candidates if each.requested]
    if len(choices) > 1:
        head = f"{offer.url} declares several feeds; give the URL of one to add it:"
        return None, [head, *_listed(offer.feeds)]
    unsure = any(each.unsure for each in offer.feeds) and not offer.has_feed
    if choices and not unsure:
        others = [each for each in offer.feeds if each not in choices]
        head = f"{offer.url} declares these feeds too, which were not added:"
        source = offer.source_of(choices[0])
        # Every format can hold a name of one line.
        name = " ".join(printable(source.name or "").split()) or None
        return replace(source, name=name), [head, *_listed(others)] if others else []
    if unsure or offer.is_usable is None:
        return None, [f"{offer.url}: no answer yet", *_listed(requested)]
    return None, [
        f"{offer.url}: nothing to declare was found there; {FEED_ADVICE}",
        *_listed(requested),
    ]


def _listed(candidates: Iterable[Candidate]) -> list[str]:
    return [f"  {_outcome(each)}" for each in candidates]
