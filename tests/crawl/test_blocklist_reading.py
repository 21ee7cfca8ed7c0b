"""R3: a long list is read in another process with the same result, or it is refused.

A published schema may be a weapon: it is given up, and the bundled one alone counts.
"""

import asyncio
import json
import math
import subprocess

import pytest

from tests.helpers.sites import BLOCKLIST
from walsh_scrapy.crawl import blocklist, isolated
from walsh_scrapy.crawl.blocklist import SHORT, check, read_list
from walsh_scrapy.crawl.isolated import CostLimits, TooCostly
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist

#: Reasons that would end a line, or begin a field, of what the process writes.
FORGED = ["a\nb.example\t\tc", "\tx", "\u2028 \x85 \0", "wegen \u00fcber", "\ud800"]


@pytest.fixture(autouse=True)
def _a_busy_machine(monkeypatch):
    """Only processor time counts: the process gets as little of the machine as others leave."""
    monkeypatch.setattr(isolated, "PATIENCE", math.inf)


def document(*domains, refresh="PT6H"):
    """A list that is read in another process only because it ends with blanks."""
    blocked = [{"domain": f"f{n}.example", "reason": text} for n, text in enumerate(FORGED)]
    blocked += [{"domain": domain, "added": "2026-05-23"} for domain in domains]
    whole = BLOCKLIST | {"refresh": refresh, "blocked": blocked}
    return json.dumps(whole).encode() + b" " * SHORT


def read(body, monkeypatch):
    """Read a list; that fails the test if this process parses it."""
    with monkeypatch.context() as patch:
        patch.setattr(Blocklist, "parse", lambda _: pytest.fail("parsed in the event loop"))
        return Blocklist.of_text(asyncio.run(read_list(body)))


@pytest.mark.parametrize("refresh", ["PT90M", "P1M"], ids=["sound", "with a problem"])
def test_a_long_list_is_read_elsewhere_with_the_same_result(monkeypatch, refresh):
    body = document("B\u00fccher.example", "::ffff:1.2.3.4", refresh=refresh)
    found = read(body, monkeypatch)
    assert found == Blocklist.parse(body)
    assert set(found.entries) >= {"xn--bcher-kva.example", "1.2.3.4", "f4.example"}


def test_a_long_list_is_refused_for_the_same_reason(monkeypatch):
    with pytest.raises(InvalidBlocklist, match=r"invalid at \$\.blocked\[5\]\.domain: 'a b'"):
        read(document("a b"), monkeypatch)


def test_a_list_that_costs_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(blocklist, "LIST_LIMITS", CostLimits(seconds=0.001, memory=2**30))
    body = b"[" + b"[]," * 3_000_000 + b"[]]"
    with pytest.raises(InvalidBlocklist, match=r"cannot be read: that took longer than 0\.001 s"):
        read(body, monkeypatch)


def test_without_another_process_a_long_list_is_refused(monkeypatch):
    def run(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", run)
    with pytest.raises(InvalidBlocklist, match="none could be started: Cannot"):
        read(document(), monkeypatch)


def test_a_crawl_that_is_stopped_waits_for_no_list(monkeypatch):
    """Without the look at signals this list takes about a second of CPU."""
    monkeypatch.setattr(blocklist, "is_stopping", lambda: True)
    monkeypatch.setattr(isolated, "LOOK_SECONDS", 0.001)
    body = b"[" + b"[]," * 3_000_000 + b"[]]"
    with pytest.raises(InvalidBlocklist, match="cannot be read: that was stopped with the crawl"):
        read(body, monkeypatch)


DOCUMENT = {
    "contract": "walsh-research-blocklist/v1",
    "refresh": "PT6H",
    "operator": "a" * 40 + "!",
    "blocked": [{"domain": "optedout.example"}],
}
PATTERN = {"properties": {"operator": {"pattern": "^([a-zA-Z ]+)+$"}}}
TREE = {"$ref": "#/$defs/n0", "$defs": {"n30": {}}}
TREE["$defs"] |= {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(30)}


def checked(schema):
    body = json.dumps(schema).encode() if isinstance(schema, dict) else schema
    asyncio.run(check(json.dumps(DOCUMENT).encode(), body))


@pytest.mark.parametrize("schema", [PATTERN, TREE], ids=["pattern", "tree of $ref"])
def test_a_check_that_would_take_for_ever_is_given_up(monkeypatch, schema):
    monkeypatch.setattr(blocklist, "SCHEMA_LIMITS", CostLimits(seconds=1, memory=2**30))
    with pytest.raises(TooCostly, match="took longer than 1 s"):
        checked(schema)


def test_a_schema_is_obeyed_or_ignored_and_never_too_long():
    checked({"required": ["refresh"]})
    with pytest.raises(InvalidBlocklist, match=r"'signature' is a required property$"):
        checked({"required": ["signature"]})
    checked(b"[")
    with pytest.raises(TooCostly, match="262145 bytes"):
        checked(b"{" + b" " * 262_144)
