"""The documents that ``scrapy discover`` requests from a site, and what each turned out to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from walsh_scrapy.metadata.alternates import is_llmstxt
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.source import Source, declared_urls, target_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.metadata.alternates import FeedLink
    from walsh_scrapy.metadata.entries import Feed

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
    link: FeedLink | None = None  #: what the page says of a feed that it declares
    entry_urls: frozenset[str | None] = frozenset()

    def claim(self) -> bool:
        """Mark the document as requested; return False if it was already.

        Several sites of one host share its llms.txt, which is requested once.
        """
        first, self.requested = not self.requested, True
        if first:
            self.end("requested, without a response", unsure=True)
        return first

    def found(self, feed: Feed, form: Form, url: str) -> None:
        """Keep what was parsed from the response of ``url``."""
        self.form, self.title, self.entries = form, feed.title or self.title, len(feed.entries)
        self.entry_urls = frozenset(entry.url for entry in feed.entries)
        self.redirected_to = None if url == self.url else url
        self.end(form)

    def end(self, outcome: str, *, unsure: bool = False) -> None:
        """Set the outcome."""
        self.outcome, self.unsure = outcome, unsure


@dataclass(slots=True)
class SiteOffer:
    """What a site offers for one URL that an operator would like to declare."""

    url: str
    page: Candidate
    llms_txt: Candidate  #: of the host; other offers may share it
    feeds: tuple[Candidate, ...] = ()  #: what its headers and its head declare as feeds

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
        """Return the documents between which the operator has to choose; one if there is no choice.

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
        """Return True if a crawl could use any candidate; None if that cannot be said now."""
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

    Raises SourcesError for a URL that cannot be declared.
    """
    llms_txts: dict[str, Candidate] = {}
    return tuple(_offer(url, llms_txts) for url in dict.fromkeys(map(target_url, urls)))


def _offer(url: str, llms_txts: dict[str, Candidate]) -> SiteOffer:
    *_, address = declared_urls(Source(url, "llms"))
    is_llms_txt = is_llmstxt(url)
    if is_llms_txt:
        address = url
    llms_txt = llms_txts.setdefault(address, Candidate(address, "llms.txt"))
    return SiteOffer(url, llms_txt if is_llms_txt else Candidate(url, "page"), llms_txt)
