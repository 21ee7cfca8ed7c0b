"""Content negotiation (R9): Accept headers, announced URLs, and how much of a body counts."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from walsh_scrapy.metadata.alternates import HEAD_BYTES, markdown_alternates
from walsh_scrapy.metadata.document import is_html
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.redirects import MOST_ANNOUNCED
from walsh_scrapy.policy.robots.records import MAX_OCTETS
from walsh_scrapy.policy.urls import strip_controls
from walsh_scrapy.runtime.requests import rank_of, visit_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Headers, Response

#: Where the llms.txt of a host is.
LLMSTXT_PATH: Final = "/llms.txt"
_DUMP: Final = "llms-full.txt"
#: The Accept header of a request for an llms.txt, and for a page.
ACCEPT_LLMSTXT: Final = "text/plain, text/markdown"
ACCEPT_MARKDOWN: Final = "text/markdown"
#: Statuses of a page after which its llms.txt is requested instead: there is no page, or none as
#: markdown (406). 408 and 429 say nothing about the page.
ABSENT: Final = [status for status in range(400, 500) if status not in (408, 429)]


def is_llmstxt(url: str) -> bool:
    """Return True for the URL of an llms.txt.

    The llms.txt of a host is at its root; a declared one may be in a folder (llmstxt.org).
    """
    return urlsplit(url).path.endswith(LLMSTXT_PATH)


def is_dump(url: str) -> bool:
    """Return True for the URL of an `llms-full.txt`, which is content and is never requested (R6).

    All spellings count, because servers decode percent signs and ignore case, trailing slashes
    and parameters.
    """
    if _DUMP not in unquote(strip_controls(url)).lower():
        return False
    names = unquote(urlsplit(url).path).lower().replace("\\", "/").split("/")
    return any(name.partition(";")[0].strip(" .") == _DUMP for name in names)


def content_type_of(headers: Headers) -> str:
    """Return the Content-Type of an answer; empty if it has none."""
    return (headers.get("Content-Type") or b"").decode("latin-1")


def counted_bytes(request: Request, headers: Headers) -> int | None:
    """Return how many bytes of the body of an answer count; None if all do.

    One octet more than counts is kept of a robots.txt, so that its last line is dropped.
    """
    if rank_of(request) is Rank.ROBOTS:
        return MAX_OCTETS + 1
    visit = visit_of(request)
    is_page = visit is not None and visit.reads_head and is_html(content_type_of(headers))
    return HEAD_BYTES if is_page else None


def links_of(response: Response) -> list[str]:
    """Return the `Link` headers of a response."""
    return [value.decode("latin-1") for value in response.headers.getlist("Link")]


def announced_by(response: Response) -> tuple[str, ...]:
    """Return the URLs, on its own server, at which a page says it is available as markdown."""
    found = markdown_alternates(links_of(response), response.url)
    others = (each for each in found if each != response.url and not is_dump(each))
    return tuple(islice(others, MOST_ANNOUNCED))
