"""R3: a long blocklist is read in another process, with the same result, or it is refused."""

import asyncio
import json
import subprocess

import pytest

from tests.helpers.sites import BLOCKLIST
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist
from walsh_scrapy.politeness import limitedprocess, listreading
from walsh_scrapy.politeness.limitedprocess import Limits
from walsh_scrapy.politeness.listreading import SHORT, read_list

#: Reasons that would end a line, or begin a field, of what the process writes.
FORGED = ["a\nb.example\t\tc", "\tx", "\u2028 \x85 \0", "wegen \u00fcber", "\ud800"]


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
        return asyncio.run(read_list(body))


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
    monkeypatch.setattr(listreading, "LIMITS", Limits(seconds=1, memory=2**28))
    body = b"[" + b"[]," * 3_000_000 + b"[]]"
    with pytest.raises(InvalidBlocklist, match="cannot be read: it needs more than 1 s or 256 MiB"):
        read(body, monkeypatch)


def test_without_another_process_a_long_list_is_refused(monkeypatch):
    def run(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", run)
    with pytest.raises(InvalidBlocklist, match="no process could be started for it: Cannot"):
        read(document(), monkeypatch)


def test_a_crawl_that_is_stopped_waits_for_no_list(monkeypatch):
    """Without the look at signals this list takes about a second of CPU."""
    monkeypatch.setattr(limitedprocess, "is_stopping", lambda: True)
    monkeypatch.setattr(limitedprocess, "LOOK_SECONDS", 0.001)
    body = b"[" + b"[]," * 3_000_000 + b"[]]"
    with pytest.raises(InvalidBlocklist, match="cannot be read: the crawl was stopped"):
        read(body, monkeypatch)
