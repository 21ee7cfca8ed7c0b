"""The documents that ``scrapy discover`` requests from a site, and what each turned out to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from walsh_scrapy.runtime.negotiation import is_llmstxt
from walsh_scrapy.sources import Source, declared_urls, target_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.metadata.entries import Feed

Role = Literal["page", "announced", "llms.txt"]
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
        self.form, self.title, self.entries = form, feed.title, len(feed.entries)
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
    announced: tuple[Candidate, ...] = ()  #: what the headers of the page announce as markdown
    feeds: tuple[str, ...] = ()  #: what they announce as feeds; not requested

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return each candidate once, in the order in which a crawl prefers them (R9).

        If the page is a feed it is the only one: an llms.txt is for sites without a feed.
        """
        others = () if self.page.form == "feed" else (*self.announced, self.llms_txt)
        return tuple({each.url: each for each in (self.page, *others)}.values())

    @property
    def usable(self) -> tuple[Candidate, ...]:
        """Return the candidates that a crawl could use, the best first."""
        return tuple(each for each in self.candidates if each.form is not None)

    @property
    def is_usable(self) -> bool | None:
        """Return True if a crawl could use any candidate; None if that cannot be said now."""
        if self.usable:
            return True
        return None if any(each.unsure for each in self.candidates) else False

    @property
    def source(self) -> Source | None:
        """Return the source to declare, or None if no candidate is usable.

        Its URL is the one that the operator gave. A crawl finds the best candidate from there, and
        a better one if the site offers it later.
        """
        if not self.usable:
            return None
        best = self.usable[0]
        return Source(self.url, "feed" if best.form == "feed" else "llms", best.title)


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
