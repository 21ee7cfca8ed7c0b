"""What a site offers to a crawl: its documents, their outcomes, and the source to declare."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from walsh_scrapy.feeds.metadata.formats import is_llmstxt
from walsh_scrapy.feeds.sources.source import (
    Source,
    SourcesError,
    declared_urls,
    target_url,
    unique,
)
from walsh_scrapy.policy.durations import format_duration
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.call import WrongCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.metadata.formats import FeedLink

#: The advice for a page on which no feed was found.
FEED_ADVICE: Final = (
    "open the page in a browser, look for a link named RSS, Atom or Feed, and give its URL; many "
    "sites have a feed at /feed, /feed.xml, /rss.xml, /atom.xml or /index.xml"
)
_NOTHING: Final = (
    "nothing found: the page is neither a feed nor markdown, there is no usable feed in its HTTP "
    "headers or its HTML head, and no usable /llms.txt"
)
_UNSURE: Final = "undecided: the requests with ? may have another outcome later"
Role = Literal["page", "feed", "llms.txt"]
Form = Literal["feed", "markdown"]


@dataclass(slots=True)
class Candidate:
    """A document that a crawl might use, and the outcome of the request for it."""

    url: str
    role: Role
    requested: bool = False
    outcome: str = "not requested"  #: a few words, which may quote the server
    form: Form | None = None  #: None if a crawl cannot use the document
    title: str | None = None
    entries: int = 0  #: the number of entries in a feed, or of links in a markdown document
    redirected_to: str | None = None
    unsure: bool = False  #: whether a later request may have another outcome
    link: FeedLink | None = None  #: the link in the page to this feed
    entry_urls: frozenset[str | None] = frozenset()

    def mark_requested(self) -> None:
        """Mark the document as requested, as long as there is no response."""
        self.requested = True
        self.set_outcome("requested, without a response", unsure=True)

    def set_feed(self, feed: Feed, form: Form, url: str) -> None:
        """Store the feed that was read from the response of ``url``."""
        self.form = form
        self.title = feed.title or self.title
        self.entries = len(feed.entries)
        self.entry_urls = frozenset(entry.url for entry in feed.entries)
        self.redirected_to = None if url == self.url else url
        self.set_outcome(form)

    def set_outcome(self, outcome: str, *, unsure: bool = False) -> None:
        """Set the outcome of the request."""
        self.outcome = outcome
        self.unsure = unsure


@dataclass(slots=True)
class SiteOffer:
    """What a site offers for one URL that an operator wants to declare."""

    url: str
    page: Candidate
    llms_txt: Candidate  #: the llms.txt of the host, which other offers may share
    feeds: tuple[Candidate, ...] = ()  #: the feeds that the page declares
    #: The page came from a public address, so its feeds must have public addresses too.
    public_only: bool = False

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return the documents of the site, without duplicates, the best ones first.

        A page that is a feed itself is the only one. An llms.txt is for sites without a feed.
        """
        documents: tuple[Candidate, ...] = ()
        if self.page.form != "feed":
            documents = self.feeds
            if not self.has_feed:
                documents = (*self.feeds, self.page, self.llms_txt)
        return tuple({document.url: document for document in (self.page, *documents)}.values())

    @property
    def has_feed(self) -> bool:
        """Whether one of the declared feeds is really a feed."""
        return any(feed.form == "feed" for feed in self.feeds)

    @property
    def usable(self) -> tuple[Candidate, ...]:
        """Return the documents that a crawl could use, without duplicates, the best ones first."""
        usable = (candidate for candidate in self.candidates if candidate.form is not None)
        by_url: dict[str, Candidate] = {}
        for candidate in sorted(usable, key=lambda candidate: candidate.form != "feed"):
            by_url.setdefault(canonical_url(candidate.redirected_to or candidate.url), candidate)
        return tuple(by_url.values())

    @property
    def choices(self) -> tuple[Candidate, ...]:
        """Return the documents between which the operator must choose, or the only one.

        Feeds of comments are left out if there is another feed. Feeds with the same entries, such
        as one feed as RSS and as Atom, are one choice.
        """
        feeds = [candidate for candidate in self.usable if candidate.form == "feed"]
        main = [feed for feed in feeds if not (feed.link and feed.link.is_of_comments)] or feeds
        by_entries: dict[object, Candidate] = {}
        for feed in main:
            by_entries.setdefault(feed.entry_urls or feed.url, feed)
        return tuple(by_entries.values()) or self.usable[:1]

    @property
    def is_usable(self) -> bool | None:
        """Return whether a crawl could use a document of the site; None if that is undecided."""
        if self.usable:
            return True
        return None if any(candidate.unsure for candidate in self.candidates) else False

    @property
    def source(self) -> Source | None:
        """Return the source to declare, or None if a crawl could not use any document."""
        return self.build_source(self.choices[0]) if self.choices else None

    def build_source(self, candidate: Candidate) -> Source:
        """Return the source to declare for a document.

        For markdown, the source has the URL that the operator gave. A crawl finds the best document
        from there, also a better one that the site offers later.
        """
        if candidate.form == "feed":
            return Source(candidate.url, "feed", candidate.title)
        return Source(self.url, "llms", candidate.title)


def offers_for(urls: Iterable[str]) -> tuple[SiteOffer, ...]:
    """Return an offer for each different URL, with nothing requested yet.

    Raises WrongCall for a URL that cannot be declared.
    """
    llms_txts: dict[str, Candidate] = {}
    try:
        targets = unique(target_url(url) for url in urls)
    except SourcesError as error:
        raise WrongCall(str(error)) from error
    return tuple(_build_offer(url, llms_txts) for url in targets)


def _build_offer(url: str, llms_txts: dict[str, Candidate]) -> SiteOffer:
    *_, llms_txt_url = declared_urls(Source(url, "llms"))
    is_llms_txt = is_llmstxt(url)
    if is_llms_txt:
        llms_txt_url = url
    llms_txt = llms_txts.setdefault(llms_txt_url, Candidate(llms_txt_url, "llms.txt"))
    return SiteOffer(url, llms_txt if is_llms_txt else Candidate(url, "page"), llms_txt)


# ---- as text and as JSON ----


def report_lines(offers: Iterable[SiteOffer]) -> Iterator[str]:
    """Yield the sources to declare as TOML, and the outcome of each request as a comment.

    If two URLs lead to the same document, the second source is a comment.
    """
    declared: dict[str, str] = {}
    for number, offer in enumerate(offers):
        if number:
            yield ""
        for candidate in offer.candidates:
            yield comment(f"{candidate.role:<10}{_describe_outcome(candidate)}")
        if offer.source is None:
            yield comment(_UNSURE if offer.is_usable is None else _NOTHING)
            if offer.is_usable is False:
                yield comment(f"advice: {FEED_ADVICE}")
        elif (first := declared.setdefault(offer.choices[0].url, offer.url)) != offer.url:
            yield comment(f"the same document as {first}; declare only one of them:")
            yield from map(comment, source_table(offer.source))
        else:
            yield from source_table(offer.source)
        for reason, source in _alternatives(offer):
            yield from map(comment, (reason, *source_table(source)))


def as_dict(offer: SiteOffer) -> dict[str, Any]:
    """Return an offer for ``--json``."""
    source = offer.source
    return {
        "url": offer.url,
        "usable": offer.is_usable,
        "source": source and {name: getattr(source, name) for name in ("url", "kind", "name")},
        "documents": [
            {
                "role": candidate.role,
                "url": candidate.url,
                "requested": candidate.requested,
                "form": candidate.form,
                "type": candidate.link.media_type if candidate.link else None,
                "title": candidate.title,
                "entries": candidate.entries,
                "redirected_to": candidate.redirected_to,
                "came": candidate.outcome,
            }
            for candidate in offer.candidates
        ],
    }


def _alternatives(offer: SiteOffer) -> Iterator[tuple[str, Source]]:
    """Yield the other sources that could be declared, each with a line to print before it."""
    for candidate in offer.usable:
        if candidate is offer.choices[0]:
            continue
        if candidate.form == "feed":
            line = f"or this feed ({_describe_type(candidate)}), which the page declares too:"
            yield line, offer.build_source(candidate)
        else:
            yield (
                f"or the {candidate.role} instead:",
                Source(candidate.url, "llms", candidate.title),
            )


def _describe_type(candidate: Candidate) -> str:
    """Return the media type of a feed as the page declares it, and whether it has comments."""
    link = candidate.link
    if link is None:
        return "a feed"
    return f"{link.media_type}, of comments" if link.is_of_comments else link.media_type


def _describe_outcome(candidate: Candidate) -> str:
    mark = "? " if candidate.unsure else ""
    kind = f"{_describe_type(candidate)}: " if candidate.link else ""
    parts = [kind + candidate.outcome]
    if candidate.form:
        nouns = ("entry", "entries") if candidate.form == "feed" else ("link", "links")
        parts.append(toml_string(candidate.title) if candidate.title else "without a title")
        parts.append(count_of(candidate.entries, *nouns))
    target = f" (redirected to {candidate.redirected_to})" if candidate.redirected_to else ""
    return f"{mark}{candidate.url}: {', '.join(parts)}{target}"


def source_table(source: Source) -> Iterator[str]:
    """Yield the lines of a table in ``sources.toml``, without the default kind "feed"."""
    yield "[[source]]"
    yield f"url = {toml_string(source.url)}"
    if source.kind != "feed":
        yield f"kind = {toml_string(source.kind)}"
    if source.name:
        yield f"name = {toml_string(source.name)}"
    if source.tags:
        yield f"tags = [{', '.join(map(toml_string, source.tags))}]"
    if source.every:
        yield f"every = {toml_string(format_duration(source.every))}"
    if source.delay:
        yield f"delay = {toml_string(format_duration(source.delay))}"


def toml_string(text: str) -> str:
    r"""Return a text as a TOML basic string that is safe for a terminal.

    Control characters and direction marks are written as `\u009b`. Lone surrogates, which are not
    allowed in TOML, become replacement characters.
    """
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(map(_escape, json.dumps(valid, ensure_ascii=False)))


def comment(line: str) -> str:
    """Return a line as a TOML comment that is safe for a terminal."""
    return f"# {printable(line)}".rstrip()


def _escape(character: str) -> str:
    return character if printable(character) == character else f"\\u{ord(character):04x}"


def choose(offer: SiteOffer) -> tuple[Source | None, list[str]]:
    """Return the source to add for an offer, and lines for the operator.

    There is no source if the page declares several feeds, because the operator must choose one of
    them, or if nothing was found. The lines then say so.
    """
    choices = offer.choices
    requested = [candidate for candidate in offer.candidates if candidate.requested]
    if len(choices) > 1:
        head = f"{offer.url} declares several feeds; call this again with the URL of one of them:"
        return None, [head, *_list_outcomes(offer.feeds)]
    unsure = any(feed.unsure for feed in offer.feeds) and not offer.has_feed
    if choices and not unsure:
        skipped = [feed for feed in offer.feeds if feed not in choices]
        head = f"{offer.url} declares more feeds, which were not added:"
        source = offer.build_source(choices[0])
        # Every format of a sources file allows a name of one line.
        name = " ".join(printable(source.name or "").split()) or None
        return replace(source, name=name), [head, *_list_outcomes(skipped)] if skipped else []
    if unsure or offer.is_usable is None:
        return None, [
            f"{offer.url}: undecided, because a request failed or was deferred; try again later",
            *_list_outcomes(requested),
        ]
    return None, [
        f"{offer.url}: no feed was found; {FEED_ADVICE}",
        *_list_outcomes(requested),
    ]


def _list_outcomes(candidates: Iterable[Candidate]) -> list[str]:
    return [f"  {_describe_outcome(candidate)}" for candidate in candidates]
