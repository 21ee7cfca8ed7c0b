"""Requests of real crawls over TLS are verified by http-message-signatures, which is not ours."""

import datetime as dt
import json
from base64 import urlsafe_b64decode
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import (
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
    algorithms,
    signatures,
)

from tests.helpers.sites import blocklist, feed, judge, rows_of, site
from walsh_scrapy.policy.signing import FIELDS, PrivateKey, directory_body
from walsh_scrapy.testing import Certificate, Reply, Site, redirect, verify_signature

LIST_URL = "https://operator.example/blocklist.json"
AGENT = "https://bot.example/.well-known/http-message-signatures-directory"
SOURCES = [
    "https://blog.example/feed",
    "https://busy.example/feed",
    "https://old.example/feed",
    "https://leaving.example/feed",
    "http://plain.example/feed",
]
Request = namedtuple("Request", "method url headers")


class Keys(HTTPSignatureKeyResolver):
    """The keys of a directory, read without our code."""

    def __init__(self, directory):
        self.keys = json.loads(directory)["keys"]

    def resolve_public_key(self, key_id):
        (jwk,) = [jwk for jwk in self.keys if jwk["kid"] == key_id]
        return Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(jwk["x"] + "="))


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
        signature_algorithm=algorithms.ED25519, key_resolver=Keys(directory)
    )
    verifier.max_clock_skew = dt.timedelta(0)
    # It refuses a stray % in a path, which is not signed: scheme and authority are enough.
    request = Request(hit.method, f"{hit.scheme}://{hit.header('Host')}/", dict(hit.headers))
    (result,) = verifier.verify(
        request, expect_tag="web-bot-auth", require_components=["@authority"]
    )
    assert '"signature-agent"' in str(result.covered_components)
    return result


@pytest.fixture
def key():
    return PrivateKey.generate()


@pytest.fixture
def signing(key, tmp_path):
    """The settings of a crawl that signs."""
    path = tmp_path / "secret-place.pem"
    path.write_bytes(key.pem)
    path.chmod(0o600)
    return {"WALSH_SIGNING_KEY": path, "WALSH_SIGNATURE_AGENT": AGENT}


def web_of(direct_web):
    def secure(host, **pages):
        return replace(site(host, **pages), tls=Certificate.GOOD)

    return direct_web(
        Site(
            "operator.example",
            pages={"/blocklist.json": blocklist("optedout.example")},
            tls=Certificate.GOOD,
        ),
        secure("blog.example"),
        secure("busy.example", feed=[Reply(status=503), Reply(status=503), feed()]),
        secure("old.example", feed=redirect("https://new.example/feed")),
        secure("new.example"),
        secure("leaving.example", feed=redirect("http://plain.example/other")),
        site("plain.example", other=feed()),
    )


def unsigned_headers(hit):
    return [(name, value) for name, value in hit.headers if name not in FIELDS]


def test_each_request_over_https_is_signed_and_none_over_http(
    direct_web, crawl, signing, key, monkeypatch
):
    web = web_of(direct_web)
    settings = {"WALSH_BLOCKLIST_URL": LIST_URL, "WALSH_BACKOFF_BASE": 0.1} | signing
    result = crawl(web, sources=SOURCES, settings=settings)
    assert result.exit_code == 0, result.stderr
    judge(result, robots_exempt=[LIST_URL])
    assert_all_verify(result.log, key, monkeypatch)
    assert_nothing_is_left_of_it(result, signing, key)


def assert_all_verify(log, key, monkeypatch):
    directory = directory_body([key.public])
    https = [hit for hit in log if hit.scheme == "https"]
    # The blocklist, robots.txt of six hosts, the feeds, two retries and a hop.
    assert len(https) == 1 + 6 + 4 + 2 + 1, [hit.url for hit in https]
    assert {"/robots.txt", "/blocklist.json", "/feed"} == {hit.path for hit in https}
    results = [verify(hit, directory, monkeypatch, hit.wall) for hit in https]
    assert len({result.nonce for result in results}) == len(https), "each has its own nonce"
    assert {verify_signature(hit, directory) for hit in https} == {key.public.thumbprint}
    for hit in https:
        assert [len(hit.header_values(name)) for name in FIELDS] == [1, 1, 1]
    for hit in https[:1]:
        verify(hit, directory, monkeypatch, hit.wall - 3)
        verify(hit, directory, monkeypatch, hit.wall + 50)
        for late in (-9, 61):
            with pytest.raises(InvalidSignature, match=r"in the (past|future)"):
                verify(hit, directory, monkeypatch, hit.wall + late)
            with pytest.raises(AssertionError, match=r"a signature (was created|had expired) "):
                verify_signature(hit, directory, now=hit.wall + late)
    for other, why in ((PrivateKey.generate().public, "has no key"), (None, "is not a JSON Web")):
        with pytest.raises(AssertionError, match=f"the directory {why}"):
            verify_signature(https[0], directory_body([other]) if other else "{}")
    plain = [hit for hit in log if hit.scheme == "http"]
    assert {hit.path for hit in plain} == {"/robots.txt", "/feed", "/other"}
    for hit in plain:
        assert unsigned_headers(hit) == list(hit.headers)
        with pytest.raises(AssertionError, match="over http"):
            verify_signature(hit, directory)


def assert_nothing_is_left_of_it(result, signing, key):
    """Neither the log nor the state has a signature; the run's record names the key."""
    state = result.folder.parent / "walsh.sqlite3"
    kept = b"".join(file.read_bytes() for file in state.parent.glob("walsh.sqlite3*"))
    written = kept + result.stderr.encode() + result.stdout.encode()
    for hit in result.log[:3]:
        fields = dict(hit.headers)
        for value in (fields["Signature"][6:-2], fields["Signature-Input"].split('"')[-4]):
            assert len(value) > 40
            assert value.encode() not in written
    assert str(signing["WALSH_SIGNING_KEY"]).encode() not in kept
    assert key.pem.splitlines()[1] not in written
    ((settings,),) = rows_of(result, "SELECT settings FROM runs")
    assert json.loads(settings)["signing_key"] == key.public.thumbprint


def test_without_a_key_nothing_is_sent_that_was_not_sent_before(
    direct_web, crawl, signing, key, monkeypatch
):
    """The same headers in the same order, but for three; without a key none of them."""
    sources = [SOURCES[0], SOURCES[-1]]
    web = web_of(direct_web)
    plain = crawl(web, sources=sources)
    form = {"WALSH_SIGNATURE_FORM": "string"}
    signed = crawl(web, sources=sources, settings=signing | form, arguments={"force": "1"})
    assert not any(hit.header(name) for hit in plain.log for name in FIELDS)
    sent = {hit.url: list(hit.headers) for hit in plain.log}
    assert sent.keys() > set(sources)
    assert [hit.url for hit in signed.log] == sources
    for hit in signed.log:
        assert unsigned_headers(hit) == sent[hit.url]
    (hit,) = [hit for hit in signed.log if hit.scheme == "https"]
    assert hit.header("Signature-Agent") == f'"{AGENT}"'
    assert verify(hit, directory_body([key.public]), monkeypatch, hit.wall)
