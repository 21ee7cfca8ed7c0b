"""What ``scrapy discover`` found, as lines for ``sources.toml`` with all else in comments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.sources import Source
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.tools.discover.candidates import Document, Finding
    from walsh_scrapy.tools.mayfetch.report import Answer, Explainer

_NOTHING: Final = (
    "nothing found: asked for the page as markdown or feed, for what its headers announce, and "
    "for /llms.txt, as far as the gates let us; HTML is not scraped"
)
_UNSURE: Final = "cannot say: what is marked with ? may be answered at another time"


def all_lines(findings: Iterable[Finding], explainer: Explainer, now: float) -> Iterator[str]:
    """Yield findings as TOML: the sources to declare, and as comments what was asked.

    What two of the URLs come to is declared once.
    """
    declared: dict[str, str] = {}
    for number, finding in enumerate(findings):
        if number:
            yield ""
        yield from map(_comment, _asked(finding, explainer, now))
        if finding.source is None:
            yield _comment(_UNSURE if finding.is_usable is None else _NOTHING)
        elif (first := declared.setdefault(finding.offers[0].url, finding.url)) != finding.url:
            yield from _commented(f"the same as {first}, so declare one of them:", finding.source)
        else:
            yield from table(finding.source)
        for why, source in _others(finding):
            yield from _commented(why, source)


def as_dict(finding: Finding, explainer: Explainer) -> dict[str, Any]:
    """Return a finding for programs (``--json``)."""
    source = finding.source
    return {
        "url": finding.url,
        "usable": finding.is_usable,
        "source": None
        if source is None
        else {"url": source.url, "kind": source.kind, "name": source.name},
        "documents": [
            {
                "role": each.role,
                "url": each.url,
                "asked": each.asked,
                "form": each.form,
                "title": each.title,
                "entries": each.entries,
                "redirected_to": each.led_to,
                "came": each.came,
            }
            for each in finding.documents
        ],
        "announced_feeds": list(finding.feeds),
        "gates": [answer.as_dict() for answer in _answers(finding, explainer)],
    }


def table(source: Source) -> Iterator[str]:
    """Yield a source as a table of ``sources.toml``; a feed needs no kind."""
    yield "[[source]]"
    yield f"url = {toml_string(source.url)}"
    if source.kind != "feed":
        yield f"kind = {toml_string(source.kind)}"
    if source.name:
        yield f"name = {toml_string(source.name)}"


def toml_string(text: str) -> str:
    r"""Return a text as a TOML basic string that is fit for a terminal.

    What would act there instead of showing something is written as ``\u009b``. A lone surrogate,
    which no TOML file can hold, becomes a replacement character.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(map(_written, json.dumps(whole, ensure_ascii=False)))


def _written(character: str) -> str:
    return character if printable(character) == character else f"\\u{ord(character):04x}"


def _asked(finding: Finding, explainer: Explainer, now: float) -> Iterator[str]:
    """Yield what the gates say, and what came of each document; a feed ends the search."""
    page, *beside = _answers(finding, explainer)
    yield from page.lines(now)
    for answer in beside:
        yield next(answer.lines(now))
        yield f"  {answer.gate or 'robots':<11}{answer.why}"
    for each in finding.documents:
        yield f"  {each.role:<11}{_came(each)}"


def _answers(finding: Finding, explainer: Explainer) -> list[Answer]:
    """Return what the gates say of the page, and of the llms.txt unless the page is a feed."""
    asked = (each.url for each in finding.documents if each.role != "announced")
    return [explainer.explain(url) for url in dict.fromkeys((finding.url, *asked))]


def _others(finding: Finding) -> Iterator[tuple[str, Source]]:
    """Yield what could be declared besides, and why it is not: by one command each URL gets one."""
    for each in finding.offers[1:]:
        yield f"or this instead, its {each.role}:", Source(each.url, "llms", each.title)
    for url in finding.feeds:
        yield "announced in its headers as a feed, so better; not asked for:", Source(url)


def _came(document: Document) -> str:
    one, many = ("entry", "entries") if document.form == "feed" else ("link", "links")
    title = toml_string(document.title) if document.title else "without a title"
    found = f", {title}, {document.entries} {one if document.entries == 1 else many}"
    where = f" (by redirect, at {document.led_to})" if document.led_to else ""
    mark = "? " if document.unsure else ""
    return f"{mark}{document.url}: {document.came}{found if document.form else ''}{where}"


def _commented(why: str, source: Source) -> Iterator[str]:
    yield _comment(why)
    yield from map(_comment, table(source))


def _comment(line: str) -> str:
    return f"# {printable(line)}".rstrip()
