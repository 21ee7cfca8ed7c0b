"""R9: sites without a feed. That a crawler scrapes no HTML, no log of a server shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.evidence import failed, not_applicable, passed
from walsh_scrapy.testing.conformance.scenario import Level, Scenario
from walsh_scrapy.testing.reply import Reply
from walsh_scrapy.testing.site import Site

if TYPE_CHECKING:
    from walsh_scrapy.testing.conformance.evidence import Evidence, Finding
    from walsh_scrapy.testing.hit import Hit

_MARKDOWN: Final = "# Docs\n\n- [One](http://docs.example/one.md): the first\n"


def _negotiated(hit: Hit) -> Reply:
    if "text/markdown" in (hit.header("Accept") or ""):
        return Reply(_MARKDOWN, content_type="text/markdown; charset=utf-8")
    return Reply("<!DOCTYPE html><title>Docs</title>", content_type="text/html")


def _structured(evidence: Evidence) -> Finding:
    asked = evidence.pages()
    if not asked:
        return not_applicable("it was given no feed-less page, or did not ask for it")
    better = [
        each
        for each in asked
        if each.hit.path == "/llms.txt" or "text/markdown" in (each.hit.header("Accept") or "")
    ]
    if not better:
        return failed("it took HTML, and asked neither for markdown nor for /llms.txt", asked)
    return passed("it asked for markdown or /llms.txt", better)


_DOCS: Final = Site(
    "docs.example",
    "",
    {"/": _negotiated, "/llms.txt": Reply(_MARKDOWN)},
)

SCENARIOS: Final = (
    Scenario(
        "structured-form",
        "R9",
        "Of a site without a feed, markdown or /llms.txt is asked for",
        _structured,
        (_DOCS,),
        pages=("http://docs.example/",),
        level=Level.SHOULD,
    ),
)
