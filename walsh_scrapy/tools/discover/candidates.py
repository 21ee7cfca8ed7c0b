"""What ``scrapy discover`` finds: the documents it asks a site for, and what each is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from walsh_scrapy.runtime.negotiation import is_llmstxt
from walsh_scrapy.sources import Source, declared_urls, target_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.metadata.entries import Feed

Role = Literal["page", "announced", "llms.txt"]
Form = Literal["feed", "markdown"]


@dataclass(slots=True)
class Document:
    """An address that may be asked for, and what came of that."""

    url: str
    role: Role
    asked: bool = False
    came: str = "not asked for"  #: a few words; a server's own among them
    form: Form | None = None  #: None: nothing that a crawl could use
    title: str | None = None
    entries: int = 0  #: of a feed; links of a page of markdown
    led_to: str | None = None  #: where redirects ended, if there were any
    unsure: bool = False  #: the server or its host may answer otherwise another time

    def ask(self) -> bool:
        """Tell whether it has to be asked for; that happens once."""
        first, self.asked = not self.asked, True
        if first:
            self.end("asked for, without an answer", unsure=True)
        return first

    def found(self, feed: Feed, form: Form, address: str) -> None:
        """Keep what a crawl could use."""
        self.form, self.title, self.entries = form, feed.title, len(feed.entries)
        self.led_to = None if address == self.url else address
        self.end(form)

    def end(self, came: str, *, unsure: bool = False) -> None:
        """Say what came."""
        self.came, self.unsure = came, unsure


@dataclass(slots=True)
class Finding:
    """A URL that an operator would like to add, with all that was asked for on its account."""

    url: str
    page: Document
    index: Document  #: the host's llms.txt, which other findings may share
    announced: tuple[Document, ...] = ()  #: what the page's headers call its markdown
    feeds: tuple[str, ...] = field(default=())  #: what they announce as feeds; not asked for

    @property
    def documents(self) -> tuple[Document, ...]:
        """Return each document once, in the order in which a crawl would prefer them (R9).

        Beside a feed there is none: an llms.txt is for sites without one.
        """
        beside = () if self.page.form == "feed" else (*self.announced, self.index)
        return tuple({each.url: each for each in (self.page, *beside)}.values())

    @property
    def offers(self) -> tuple[Document, ...]:
        """Return the documents that a crawl could use, the one it would use first."""
        return tuple(each for each in self.documents if each.form is not None)

    @property
    def is_usable(self) -> bool | None:
        """Tell whether a crawl could use the URL; None if that cannot be said now."""
        if self.offers:
            return True
        return None if any(each.unsure for each in self.documents) else False

    @property
    def source(self) -> Source | None:
        """Return the source to declare, if there is any.

        Its URL is the one that was given: a crawl comes from there to whatever was found, and to
        something better if the site begins to offer that.
        """
        if not self.offers:
            return None
        best = self.offers[0]
        return Source(self.url, "feed" if best.form == "feed" else "llms", best.title)


def findings_for(urls: Iterable[str]) -> tuple[Finding, ...]:
    """Return what is to be found of each URL, once each. Raises SourcesError for a bad one."""
    indexes: dict[str, Document] = {}
    return tuple(_unknown(url, indexes) for url in dict.fromkeys(map(target_url, urls)))


def _unknown(url: str, indexes: dict[str, Document]) -> Finding:
    *_, address = declared_urls(Source(url, "llms"))
    is_itself = is_llmstxt(url)
    if is_itself:
        address = url
    index = indexes.setdefault(address, Document(address, "llms.txt"))
    return Finding(url, index if is_itself else Document(url, "page"), index)
