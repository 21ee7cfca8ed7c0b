"""The scenarios of signed requests: what a site would refuse fails, and nothing else."""

from collections import namedtuple
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver, algorithms

from walsh_scrapy.policy.signing import PrivateKey, RequestSigner
from walsh_scrapy.testing.conformance import SCENARIOS, Run
from walsh_scrapy.testing.conformance.scenario import Seen, TrialLog
from walsh_scrapy.testing.hit import Hit

Request = namedtuple("Request", "method url headers")
SCENARIO = {each.name: each for each in SCENARIOS}
HOST = "plain.example"
NOW = 1e9
KEY = PrivateKey.generate()
SIGNING = ["signatures-verify", "signature-of-its-own", "no-signature-over-http", "all-signed"]


def request(scheme, host=HOST, headers=()):
    hit = Hit(0.0, 0.01, NOW, "GET", scheme, host, 443, "/feed.xml", status=200, headers=headers)
    return Seen(hit, Run.FIRST, 0.0)


def signed(*, to=HOST, host=HOST, late=0, key=KEY, form="dictionary", scheme="https", **fields):
    """Return a request to a host with a signature for that or for another one."""
    signer = RequestSigner(key=key, agent="https://bot.example/", form=form)
    given = signer.fields(to, NOW - late, f"nonce {late} {to}") | fields
    headers = (("Host", host), *((name, value) for name, value in given.items() if value))
    return request(scheme, host, headers)


def of_signatures(name, *requests):
    public = Ed25519PublicKey.from_public_bytes(KEY.public.data)
    return SCENARIO[name].judge(TrialLog(requests, frozenset({HOST}), key=public))


@pytest.mark.parametrize("form", ["dictionary", "string"])
def test_signed_requests_of_both_forms_pass(form):
    port = "127.2.0.1:40123"
    requests = [
        signed(form=form),
        signed(form=form, to="b.example:8443", host="b.example:8443"),
        replace(signed(form=form), original=signed(form=form, to=port, host=port).hit),
        request("http"),
    ]
    assert [of_signatures(name, *requests).verdict for name in SIGNING] == ["pass"] * 4


class OneKey(HTTPSignatureKeyResolver):
    """Signs with the key by a library that is not ours."""

    def resolve_private_key(self, key_id):
        return load_pem_private_key(KEY.pem, None)


@pytest.mark.parametrize("url", [f"https://{HOST}/feed.xml?a=b", f"https://{HOST}/feed.xml"])
def test_signatures_of_another_library_may_cover_all_of_a_request(url):
    agent, path = '"https://bot.example/"', url.removeprefix(f"https://{HOST}")
    message = Request("GET", url, {"User-Agent": "Bot/1", "Signature-Agent": agent})
    covered = ["@method", "@target-uri", "@authority", "@scheme", "@path", "@request-target"]
    covered += ["@query"] if "?" in url else []
    HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=OneKey()).sign(
        message,
        key_id=KEY.public.thumbprint,
        created=datetime.fromtimestamp(NOW - 5, UTC),
        expires=datetime.fromtimestamp(NOW + 5, UTC),
        tag="web-bot-auth",
        covered_component_ids=[*covered, "user-agent", "signature-agent"],
    )
    sent = request("https", HOST, (("Host", f"{HOST}:443"), *message.headers.items()))
    right, wrong = (replace(sent, hit=replace(sent.hit, path=each)) for each in (path, "/other"))
    assert of_signatures("signatures-verify", right).verdict == "pass"
    assert of_signatures("signatures-verify", wrong).verdict == "fail"


@pytest.mark.parametrize("name", SIGNING)
def test_signatures_do_not_apply_to_who_signs_nothing(name):
    assert of_signatures(name, request("https"), request("http")).verdict == "not applicable"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"late": 61}, "had expired 6.0 s before the request came"),
        ({"Signature-Agent": ""}, "has no Signature-Agent"),
        ({"Signature-Input": 'sig1=();tag="web-bot-auth"'}, "when it was created and expires"),
        ({"key": PrivateKey.generate()}, "it signs with two keys"),
    ],
)
def test_a_signature_that_a_site_would_refuse_fails(wrong, told):
    finding = of_signatures("signatures-verify", signed(late=1), signed(**wrong))
    assert finding.verdict == "fail"
    assert told in finding.reason


def test_a_key_that_was_not_given_is_not_judged():
    other = PrivateKey.generate()
    assert of_signatures("signatures-verify", signed(key=other)).verdict == "not applicable"
    assert of_signatures("signatures-verify", signed(key=other, late=61)).verdict == "fail"


def test_a_signature_counts_for_one_request():
    assert of_signatures("signature-of-its-own", signed()).verdict == "not applicable"
    assert of_signatures("signature-of-its-own", signed(), signed(late=1)).verdict == "pass"
    hop = of_signatures("signature-of-its-own", signed(), signed(host="b.example"))
    assert hop.verdict == "fail"
    assert "Signature-Input: sig1=" in hop.lines[0]


def test_signatures_over_http_and_requests_without_one():
    over_http = signed(scheme="http")
    assert of_signatures("no-signature-over-http", over_http).verdict == "fail"
    assert of_signatures("no-signature-over-http", signed()).verdict == "not applicable"
    assert of_signatures("all-signed", signed(), request("https")).verdict == "fail"
