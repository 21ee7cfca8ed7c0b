"""The keys of an entry: hashes of its page, its id and its title (decision 19).

A key has no scheme: a site that begins to use https lists the same entries as before.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

from walsh_scrapy.policy.urls import canonical_url, host_of

_WEB: Final = re.compile(r"\s*https?://", re.IGNORECASE)
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:\S", re.IGNORECASE | re.ASCII)


class EntryKeys(NamedTuple):
    """What identifies an entry: SHA-256 in hex, and a date."""

    page: str  #: of its link without fragment; without a link of what stands for it
    id: str | None = None
    title: str | None = None
    #: Of the source and the title, if the entry has no link: its page if the id proves nothing.
    linkless_page: str | None = None
    #: The date of publication (RFC 3339, UTC); None if it does not tell entries apart.
    date: str | None = None

    @property
    def without_id(self) -> EntryKeys:
        """The same entry, if its id proves nothing."""
        return self._replace(id=None, page=self.linkless_page or self.page)


class SourceKeys:
    """Makes the keys of entries of one source; ``source`` is its URL, as declared."""

    def __init__(self, source: str) -> None:
        self._source = without_scheme(canonical_url(source))
        self._host = host_of(source)

    def of(self, url: str | None, id_: str | None, title: str | None) -> EntryKeys:
        """Return the keys of an entry with this link, id and title, without a date.

        Without a link, an id stands for the page: alone if it is a URI, else together with the
        source, because an id such as `17` is another entry in another feed.
        """
        linkless_page = None
        if url:
            page = without_scheme(canonical_url(url))
        else:
            linkless_page = _sha256(f"{self._source}\0\0{title or ''}")
            page = self._page_of_id(id_) if id_ else ""
        return EntryKeys(
            _sha256(page) if page else linkless_page or "",
            _sha256(f"id {_plain_id(id_)}") if id_ else None,
            _sha256(f"title {title}") if title else None,
            linkless_page,
        )

    def is_own(self, url: str | None, id_: str | None) -> bool:
        """Return True if the page of an entry is on the host of the source, or if it has none."""
        return host_of(url or id_ or "") in ("", self._host)

    def _page_of_id(self, id_: str) -> str:
        if _WEB.match(id_):
            return without_scheme(canonical_url(id_))
        return id_ if _URI.match(id_) else f"{self._source}\0{id_}"


def page_elsewhere(page: str) -> str:
    """Return the key under which a page is stored for a source on another host.

    Sources on the host of the page do not use this key. So no other source can make one of their
    entries look known, and keep them from reporting it.
    """
    return _sha256(f"elsewhere {page}")


def row_key(keys: EntryKeys, attempt: int) -> str:
    """Return the key of a row for an entry that is not the first one of its page.

    ``attempt`` is above 0 if the rows of earlier attempts exist.
    """
    return _sha256("\0".join((*(key or "" for key in keys), str(attempt))))


def without_scheme(url: str) -> str:
    """Return a URL without `http://` or `https://`; any other text as it is."""
    return _WEB.sub("", url, count=1) if _WEB.match(url) else url


def _plain_id(id_: str) -> str:
    """Return an id; if it is a URL, in the spelling of all that mean one page, without scheme.

    A fragment belongs to an id: that of a comment may be its post's with a fragment.
    """
    if not _WEB.match(id_):
        return id_
    return without_scheme(id_ if "#" in id_ else canonical_url(id_))


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
