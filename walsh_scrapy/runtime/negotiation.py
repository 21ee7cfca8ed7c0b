"""What is asked of a site without a feed, in which words, and what its answers say (R9)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from walsh_scrapy.metadata.linkheader import markdown_alternates
from walsh_scrapy.policy.urls import strip_controls

if TYPE_CHECKING:
    from scrapy.http import Headers, Response

#: Where the index of a host is, and what a request for it accepts.
INDEX_PATH: Final = "/llms.txt"
_DUMP: Final = "llms-full.txt"
INDEX: Final = "text/plain, text/markdown"
#: What a request for a page accepts.
MARKDOWN: Final = "text/markdown"
#: Of the addresses that a page announces so many are tried, until one answers as markdown.
MOST_ANNOUNCED: Final = 3
#: A page that is not to be had, or not as markdown (406), has an llms.txt in its place. 408 and 429
#: say nothing of the page, and are not among them.
ABSENT: Final = [status for status in range(400, 500) if status not in (408, 429)]


def is_index(url: str) -> bool:
    """Tell whether an address is that of an llms.txt.

    The one for a whole host is at its root; one that is declared may be in a folder (llmstxt.org).
    """
    return urlsplit(url).path.endswith(INDEX_PATH)


def is_dump(url: str) -> bool:
    """Tell whether an address is that of `llms-full.txt`: the pages themselves, never asked for.

    However it is spelled: servers take percent signs, capitals, slashes at the end and parameters
    for what they stand for, or leave them out.
    """
    if _DUMP not in unquote(strip_controls(url)).lower():
        return False
    names = unquote(urlsplit(url).path).lower().replace("\\", "/").split("/")
    return any(name.partition(";")[0].strip(" .") == _DUMP for name in names)


def content_type_of(headers: Headers) -> str:
    """Return the Content-Type of an answer; empty if it has none."""
    return (headers.get("Content-Type") or b"").decode("latin-1")


def links_of(response: Response) -> list[str]:
    """Return the `Link` headers of a response."""
    return [value.decode("latin-1") for value in response.headers.getlist("Link")]


def announced_by(response: Response) -> tuple[str, ...]:
    """Return where else, on its own server, a page says it is to be had as markdown."""
    language = (response.headers.get("Content-Language") or b"").decode("latin-1")
    found = markdown_alternates(links_of(response), response.url, language)
    others = (each for each in found if each != response.url and not is_dump(each))
    return tuple(islice(others, MOST_ANNOUNCED))
