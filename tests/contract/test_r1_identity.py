"""R1: the exact User-Agent on every request, and no header that connects two visits."""

import asyncio
import datetime as dt
import json
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import pytest
from http_message_signatures import (
    HTTPMessageVerifier,
    InvalidSignature,
    algorithms,
    signatures,
)
from scrapy import Request
from scrapy.settings import Settings

from tests.helpers.keydirectory import DirectoryKeys
from tests.helpers.sites import LIST_URL, blocklist, feed, judge, rows_of, site
from walsh_scrapy import identity
from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.downloadermiddlewares.identity import IdentityMiddleware
from walsh_scrapy.policy.signing import FIELDS, PrivateKey, directory_body
from walsh_scrapy.testing import Certificate, verify_signature
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.web import Reply, Site, redirect

pytestmark = pytest.mark.usefixtures("crawl")


def test_the_identity_is_the_contracts_to_the_letter():
    wanted = "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"
    assert wanted == identity.USER_AGENT
    assert identity.UA_TOKEN == "Walsh-Research"


def test_the_command_line_cannot_change_the_user_agent(direct_web, crawl):
    refresh = {"Set-Cookie": "seen=1; Path=/", "Refresh": "0; url=/feed?refreshed"}
    setting_cookies = feed(headers=refresh)
    web = direct_web(
        Site("operator.example", pages={"/blocklist.json": blocklist("optedout.example")}),
        site("blog.example", feed=setting_cookies, second=setting_cookies),
        site("old.example", feed=redirect("http://new.example/feed")),
        site("new.example"),
        site("busy.example", feed=[Reply(status=503), feed()]),
    )
    result = crawl(
        web,
        sources=[
            "http://blog.example/feed",
            "http://blog.example/second",
            "http://old.example/feed",
            "http://busy.example/feed",
        ],
        settings={
            "WALSH_BLOCKLIST_URL": LIST_URL,
            "WALSH_BACKOFF_BASE": 0.1,
            "USER_AGENT": "x",
            "COOKIES_ENABLED": 1,
            "REFERER_ENABLED": 1,
            "HTTPAUTH_USER": "me",
            "HTTPAUTH_DOMAIN": "blog.example",
            "CONCURRENT_REQUESTS": 16,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "ROBOTSTXT_OBEY": 0,
        },
    )
    assert result.exit_code == 0
    assert len(result.log) == 12
    judge(result, robots_exempt=[LIST_URL])
    assert {hit.header("User-Agent") for hit in result.log} == {identity.USER_AGENT}
    assert not any(hit.header(name) for hit in result.log for name in FIELDS), "it has no key"
    for name in ("USER_AGENT", "CONCURRENT_REQUESTS", "ROBOTSTXT_OBEY", "COOKIES_ENABLED"):
        assert f"{name} = " in result.stderr, "an overridden setting is logged"


def test_the_gate_has_the_last_word_on_headers():
    request = Request(
        "http://blog.example/",
        headers={
            "User-Agent": "spider's own",
            "Cookie": "a=b",
            "Referer": "http://other.example/",
            "Authorization": "Basic eDp5",
            "Accept": "text/xml",
        },
    )
    options = SimpleNamespace(user_agent=identity.USER_AGENT)
    crawl = SimpleNamespace(
        context=SimpleNamespace(options=options), settings=Settings(), kind=Kind.DECLARED
    )
    asyncio.run(IdentityMiddleware(crawl).process_request(request))
    assert request.headers.to_unicode_dict() == {
        "User-Agent": identity.USER_AGENT,
        "Accept": "text/xml",
    }


# Requests of real crawls over TLS are verified by http-message-signatures, which is not ours.

SECURE_LIST_URL = "https://operator.example/blocklist.json"
AGENT = "https://bot.example/.well-known/http-message-signatures-directory"
SOURCES = [
    "https://blog.example/feed",
    "https://busy.example/feed",
    "https://old.example/feed",
    "https://leaving.example/feed",
    "http://plain.example/feed",
]
SignedRequest = namedtuple("SignedRequest", "method url headers")


def verify(hit, directory, monkeypatch, now):
    """Verify a request at a moment, by a clock that has no tolerance."""

    class At(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(now, tz)

    clock = SimpleNamespace(**{name: getattr(dt, name) for name in dt.__all__})
    clock.datetime = At
    monkeypatch.setattr(signatures, "datetime", clock)
    verifier = HTTPMessageVerifier(
        signature_algorithm=algorithms.ED25519, key_resolver=DirectoryKeys(directory)
    )
    verifier.max_clock_skew = dt.timedelta(0)
    # It refuses a stray % in a path, which is not signed: scheme and authority are enough.
    request = SignedRequest(hit.method, f"{hit.scheme}://{hit.header('Host')}/", dict(hit.headers))
    (result,) = verifier.verify(
        request, expect_tag="web-bot-auth", require_components=["@authority"]
    )
    assert '"signature-agent"' in str(result.covered_components)
    return result


def secure(host, **pages):
    return replace(site(host, **pages), tls=Certificate.GOOD)


@pytest.fixture(scope="module")
def key():
    return PrivateKey.generate()


@pytest.fixture(scope="module")
def directory(key):
    return directory_body([key.public])


@pytest.fixture(scope="module")
def key_file(key, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "secret-place.pem"
    path.write_bytes(key.pem)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def signed(shared_crawl, key_file):
    """A crawl that signs its requests."""
    operator = {"/blocklist.json": blocklist("optedout.example")}
    web = DirectWeb(
        Site("operator.example", pages=operator, tls=Certificate.GOOD),
        secure("blog.example"),
        secure("busy.example", feed=[Reply(status=503), Reply(status=503), feed()]),
        secure("old.example", feed=redirect("https://new.example/feed")),
        secure("new.example"),
        secure("leaving.example", feed=redirect("http://plain.example/other")),
        site("plain.example", other=feed()),
    )
    settings = {"WALSH_BLOCKLIST_URL": SECURE_LIST_URL, "WALSH_BACKOFF_BASE": 0.1}
    settings |= {"WALSH_SIGNING_KEY": key_file, "WALSH_SIGNATURE_AGENT": AGENT}
    return shared_crawl(web, sources=SOURCES, settings=settings)


@pytest.fixture
def https(signed):
    return [hit for hit in signed.log if hit.scheme == "https"]


def test_a_crawl_that_signs_is_polite(signed):
    assert signed.exit_code == 0, signed.stderr
    judge(signed, robots_exempt=[SECURE_LIST_URL])


def test_each_request_over_https_is_signed(https, directory, key, monkeypatch):
    # The blocklist, robots.txt of six hosts, the feeds, two retries and a hop.
    assert len(https) == 1 + 6 + 4 + 2 + 1, [hit.url for hit in https]
    assert {"/robots.txt", "/blocklist.json", "/feed"} == {hit.path for hit in https}
    for hit in https:
        verify(hit, directory, monkeypatch, hit.wall)
        assert [len(hit.header_values(name)) for name in FIELDS] == [1, 1, 1]
    assert {verify_signature(hit, directory) for hit in https} == {key.public.thumbprint}


def test_each_signature_has_its_own_nonce(https, directory, monkeypatch):
    results = [verify(hit, directory, monkeypatch, hit.wall) for hit in https]
    assert len({result.nonce for result in results}) == len(https)


@pytest.mark.parametrize("late", [-3, 50])
def test_a_signature_counts_for_a_minute(https, directory, monkeypatch, late):
    verify(https[0], directory, monkeypatch, https[0].wall + late)


@pytest.mark.parametrize("late", [-9, 61])
def test_a_signature_counts_neither_sooner_nor_later(https, directory, monkeypatch, late):
    with pytest.raises(InvalidSignature, match=r"in the (past|future)"):
        verify(https[0], directory, monkeypatch, https[0].wall + late)


def test_no_request_over_http_is_signed(signed):
    plain = [hit for hit in signed.log if hit.scheme == "http"]
    assert {hit.path for hit in plain} == {"/robots.txt", "/feed", "/other"}
    assert not any(hit.header(name) for hit in plain for name in FIELDS)


def test_neither_log_nor_state_has_a_signature_or_the_key(signed, key, key_file):
    files = signed.folder.parent.glob("walsh.sqlite3*")
    kept = b"".join(file.read_bytes() for file in files)
    written = kept + signed.stderr.encode() + signed.stdout.encode()
    for hit in signed.log[:3]:
        fields = dict(hit.headers)
        for value in (fields["Signature"][6:-2], fields["Signature-Input"].split('"')[-4]):
            assert len(value) > 40
            assert value.encode() not in written
    assert str(key_file).encode() not in kept
    assert key.pem.splitlines()[1] not in written


def test_the_record_of_a_run_names_its_key(signed, key):
    ((settings,),) = rows_of(signed, "SELECT settings FROM runs")
    assert json.loads(settings)["signing_key"] == key.public.thumbprint
