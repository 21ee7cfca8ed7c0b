"""README, docs and help texts do without the ten patterns that were hardest to read."""

import ast
import re

import pytest

from tests.helpers import ROOT

#: Each with the words to write instead.
INSTEAD = {
    "a line each": "one per line",
    "an object a line": "one object per line",
    "but for": "except",
    "for good": "permanently",
    "by which": "that, with which",
    "so long": "at least",
    "of ours": "the name of the part",
    "also if": "even if",
    "the begin of": "the start of",
    "as what": "the noun",
}
WORST = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
PAGES = [*ROOT.glob("[RS]E*.md"), ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
TOOLS = [
    file
    for folder in ("commands", "console", "tools")
    for file in (ROOT / "walsh_scrapy" / folder).rglob("*.py")
]


def help_of(source):
    """The docstring of a module, and each `help=` in it: what `--help` prints."""
    tree = ast.parse(source)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = [word.value for call in calls for word in call.keywords if word.arg == "help"]
    return "\n".join([ast.get_docstring(tree) or "", *map(ast.unparse, given)])


def found_in(text):
    """The patterns in a text, over line breaks too."""
    found = WORST.findall(" ".join(text.split()))
    return {pattern: INSTEAD[pattern.lower()] for pattern in found}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_page_has_none_of_them(file):
    assert found_in(file.read_text("utf-8")) == {}


@pytest.mark.parametrize("file", TOOLS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_help_text_has_none_of_them(file):
    assert found_in(help_of(file.read_text("utf-8"))) == {}


def test_they_are_found_over_line_breaks_and_in_help_texts():
    assert found_in("All of it, but\nfor one, kept For good.").keys() == {"but for", "For good"}
    assert found_in(help_of('"""Doc, also if."""\nadd(help="span so long")')).keys() == {
        "also if",
        "so long",
    }
