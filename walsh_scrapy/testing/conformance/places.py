"""Where the hosts of the scenarios are: at names behind a proxy, or at addresses without one.

Without a proxy a program finds no name that only a test knows. So each host has an address of
127.0.0.0/8, and each URL the port on which the web listens: `http://127.2.0.1:40123/feed.xml`
stands for `http://plain.example/feed.xml`. What is given to a crawler is translated on its way
out, and the log on its way back, so scenarios and reports have names only.
"""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.reply import Raw, Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walsh_scrapy.testing.connections import ConnectionRecord
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.reply import Page
    from walsh_scrapy.testing.site import Site

_NAME: Final = re.compile(r"(?:(https?)://)?((?:[a-z0-9-]+\.)+example)(?![\w.-])")
#: Of the first host.
_FIRST: Final = IPv4Address("127.2.0.1")


class Places:
    """Translates between the names of scenarios and addresses; without `ports` names stay."""

    def __init__(self, names: Iterable[str], ports: Mapping[str, int] | None = None) -> None:
        self._ports = dict(ports or {})
        given = dict.fromkeys(names) if self._ports else {}
        self._addresses = {name: str(_FIRST + place) for place, name in enumerate(given)}
        self._names = {address: name for name, address in self._addresses.items()}
        literals = "|".join(re.escape(address) for address in self._names)
        self._address = re.compile(rf"({literals})(?::\d+)?(?![\d.])") if literals else None

    def text(self, text: str) -> str:
        """Return a text with addresses in the place of names."""
        return _NAME.sub(self._placed, text)

    def site(self, site: Site) -> Site:
        """Return a site at its address."""
        pages = {path: self._page(page) for path, page in site.pages.items()}
        robots = None if site.robots is None else self._page(site.robots)
        name = self._addresses.get(site.name, site.name)
        return replace(site, name=name, pages=pages, robots=robots)

    def hit(self, hit: Hit) -> Hit:
        """Return a request as if it had been made by name."""
        name = self._names.get(hit.host)
        if name is None:
            return hit
        headers = tuple((key, self._named(value)) for key, value in hit.headers)
        answer = tuple((key, self._named(value)) for key, value in hit.answer)
        port = DEFAULT_PORTS[hit.scheme]
        return replace(hit, host=name, port=port, headers=headers, answer=answer)

    def connection(self, record: ConnectionRecord) -> ConnectionRecord:
        """Return a connection as if it had been made by name."""
        return replace(record, host=self._names.get(record.host, record.host))

    def _placed(self, found: re.Match[str]) -> str:
        scheme, name = found.groups()
        address = self._addresses.get(name)
        if address is None:
            return found[0]
        return f"{scheme}://{address}:{self._ports[scheme]}" if scheme else address

    def _named(self, text: str) -> str:
        if self._address is None:
            return text
        return self._address.sub(lambda found: self._names[found[1]], text)

    def _page(self, page: Page) -> Page:
        match page:
            case Reply():
                body = page.body
                placed = self.text(body) if isinstance(body, str) else body
                headers = [(key, self.text(value)) for key, value in _pairs(page)]
                return replace(page, body=placed, headers=headers)
            case str():
                return self.text(page)
            case Raw() | bytes():
                return page
        if callable(page):
            return lambda hit: self._page(page(hit))
        return [self._page(each) for each in page]


def _pairs(reply: Reply) -> list[tuple[str, str]]:
    headers = reply.headers
    return list(headers.items() if hasattr(headers, "items") else headers)
