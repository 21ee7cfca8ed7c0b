"""Writes small, valid feed documents for tests and for the demo web.

rss("Blog", [Post("One", "http://blog.example/one"), "Two"])
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from html import escape

#: The publication date of posts that set none.
DATE = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Post:
    """One entry of a feed. Without an `id`, the link is the id. The link may be relative."""

    title: str
    link: str | None = None
    id: str | None = None
    published: datetime | None = DATE

    @property
    def key(self) -> str | None:
        """The id of the entry in the feed."""
        return self.id or self.link


def rss(title: str, posts: Iterable[Post | str], link: str = "http://blog.example/") -> str:
    """Return an RSS 2.0 document.

    A post that is given as its title gets a link below `link`, and a date of its own: the day
    before that of the post above it.
    """
    items = "".join(map(_rss_item, _posts(posts, link)))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>\n'
        f"<title>{escape(title)}</title><link>{escape(link)}</link>"
        f"<description>{escape(title)}</description>\n{items}</channel></rss>\n"
    )


def atom(title: str, posts: Iterable[Post | str], link: str = "http://blog.example/") -> str:
    """Return an Atom 1.0 document."""
    entries = "".join(map(_atom_entry, _posts(posts, link)))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f'<title>{escape(title)}</title><id>{escape(link)}</id><link href="{escape(link)}"/>'
        f"<updated>{DATE.isoformat()}</updated>\n{entries}</feed>\n"
    )


def json_feed(title: str, posts: Iterable[Post | str], link: str = "http://blog.example/") -> str:
    """Return a JSON Feed 1.1 document."""
    document = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": title,
        "home_page_url": link,
        "items": [_json_item(post) for post in _posts(posts, link)],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _posts(posts: Iterable[Post | str], link: str) -> Iterator[Post]:
    for number, post in enumerate(posts, 1):
        if isinstance(post, str):
            date = DATE - timedelta(days=number - 1)
            yield Post(post, f"{link.rstrip('/')}/{number}", published=date)
        else:
            yield post


def _rss_item(post: Post) -> str:
    permalink = "true" if post.key == post.link else "false"
    parts = (
        f"<title>{escape(post.title)}</title>",
        f"<link>{escape(post.link)}</link>" if post.link else "",
        f'<guid isPermaLink="{permalink}">{escape(post.key)}</guid>' if post.key else "",
        f"<pubDate>{format_datetime(post.published)}</pubDate>" if post.published else "",
    )
    return f"<item>{''.join(parts)}</item>\n"


def _atom_entry(post: Post) -> str:
    date = post.published.isoformat() if post.published else ""
    parts = (
        f"<title>{escape(post.title)}</title>",
        f'<link href="{escape(post.link)}"/>' if post.link else "",
        f"<id>{escape(post.key)}</id>" if post.key else "",
        f"<published>{date}</published><updated>{date}</updated>" if date else "",
    )
    return f"<entry>{''.join(parts)}</entry>\n"


def _json_item(post: Post) -> dict[str, str]:
    members = {
        "id": post.key,
        "url": post.link,
        "title": post.title,
        "date_published": post.published.isoformat() if post.published else None,
    }
    return {name: value for name, value in members.items() if value is not None}
