"""Public suffixes: domains below which anybody can register (publicsuffix.org).

The list is the one bundled with tldextract, its private part included. Nothing is fetched.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.urls import host_of

if TYPE_CHECKING:
    from collections.abc import Collection

_FILE: Final = ".tld_set_snapshot"


class _Suffixes(NamedTuple):
    names: frozenset[str]
    wild: frozenset[str]  #: each name directly below is one as well
    exceptions: frozenset[str]


def public_suffixes(domains: Collection[str]) -> list[str]:
    """Return those domains that are public suffixes, or have one below them, sorted.

    >>> public_suffixes({"co.uk", "example.co.uk", "com"})
    ['co.uk', 'com']
    """
    known = _suffixes()
    found = {name for name in (known.names | known.wild) if name in domains}
    found |= {name for name in domains if name.partition(".")[2] in known.wild}
    return sorted(found - known.exceptions)


@cache
def _suffixes() -> _Suffixes:
    # Importing tldextract takes as long as importing Scrapy, because it imports an HTTP client.
    package = find_spec("tldextract")
    folder = Path(package.origin).parent if package and package.origin else Path()
    names, wild, exceptions = set[str](), set[str](), set[str]()
    for line in (folder / _FILE).read_text("utf-8").splitlines():
        rule = line.strip()
        if not rule or rule.startswith("//"):
            continue
        kind = wild if rule.startswith("*.") else exceptions if rule.startswith("!") else names
        name = rule.lstrip("*.!")
        kind.add(name if name.isascii() else host_of(f"http://{name}/"))
    return _Suffixes(*map(frozenset, (names, wild, exceptions)))
