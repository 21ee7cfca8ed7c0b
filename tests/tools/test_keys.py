"""`scrapy keys`: from a new key to a directory that a verifier accepts."""

import datetime as dt
import json
import stat
from collections import namedtuple
from types import SimpleNamespace

import pytest
from http_message_signatures import HTTPMessageVerifier, algorithms

from tests.contract.test_signing import Keys
from tests.helpers.sites import paths
from walsh_scrapy.policy.signing.keys import (
    DIRECTORY_PATH,
    DIRECTORY_TYPE,
    PrivateKey,
    directory_body,
    directory_fields,
)
from walsh_scrapy.policy.signing.requests import FIELDS
from walsh_scrapy.testing import Certificate, Reply, Site, redirect, verify_signature
from walsh_scrapy.testing.project import keep_empty_blocklist
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.keys import DirectoryResponse, checks, directory_url, keys_of, new_key

AGENT = "https://bot.example/"
URL = AGENT.rstrip("/") + DIRECTORY_PATH
Request = namedtuple("Request", "method url headers")


@pytest.fixture
def keys(tmp_path, run_scrapy):
    """Run `scrapy keys` in front of a web, if there is one, on a new state."""

    def run(*arguments, web=None, **settings):
        given = {
            "WALSH_STATE_URL": f"sqlite:///{tmp_path / 'state.sqlite3'}",
            "WALSH_BLOCKLIST_SCHEMA_URL": "",
        } | settings
        keep_empty_blocklist(given["WALSH_STATE_URL"])
        environment = web.environment if web else None
        done = run_scrapy("keys", *arguments, settings=given, environment=environment)
        assert "Traceback" not in done.stderr
        return done

    return run


def serving(reply, host="bot.example", robots=""):
    return Site(host, robots, {DIRECTORY_PATH: reply}, tls=Certificate.GOOD)


def test_from_a_new_key_to_a_directory_that_verifies(direct_web, keys, tmp_path):
    """Two keys, as during a rotation: the old one is published with the new one."""
    files = [tmp_path / "new.pem", tmp_path / "old.pem"]
    made = [keys("new", file) for file in files]
    thumbprints = [done.stdout.strip() for done in made]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    settings = {"WALSH_SIGNING_KEY": files[0], "WALSH_SIGNATURE_AGENT": AGENT}
    body = keys("directory", *files, **settings).stdout
    assert [jwk["kid"] for jwk in json.loads(body)["keys"]] == thumbprints
    assert '"d"' not in body
    printed = keys("directory", *files, "--headers", "--days", "7", **settings).stdout
    headers = dict(line.split(": ", 1) for line in printed.splitlines())
    assert_proved_by_both(body, headers, thumbprints)

    web = direct_web(serving(Reply(body, content_type=None, headers=headers)))
    checked = keys("check", web=web, **settings)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    lines = checked.stdout.splitlines()
    assert lines[0] == URL
    assert {line[:5] for line in lines[1:]} == {"  ok "}
    assert [f"{key}: signed, until" in checked.stdout for key in thumbprints] == [True, True]
    assert lines[-1].endswith(f"{thumbprints[0]}, is published here")
    assert paths(web.log) == ["bot.example/robots.txt", f"bot.example{DIRECTORY_PATH}"]
    asked = web.log[-1]
    assert (asked.header("Accept"), asked.header("Accept-Encoding")) == (DIRECTORY_TYPE, "identity")
    assert verify_signature(asked, body) == thumbprints[0]


def assert_proved_by_both(body, headers, thumbprints):
    """Verify the response by http-message-signatures, as one to a request for the directory."""
    answer = SimpleNamespace(
        status_code=200, headers=headers, request=Request("GET", URL, {"Host": "bot.example"})
    )
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys(body))
    proofs = verifier.verify(
        answer,
        expect_tag="http-message-signatures-directory",
        require_components=['"@authority";req', "content-digest"],
        body=body.encode(),
    )
    assert [proof.parameters["keyid"] for proof in proofs] == thumbprints
    lasting = {proof.parameters["expires"] - proof.parameters["created"] for proof in proofs}
    assert lasting == {7 * 86_400}


def test_what_a_verifier_does_not_accept(direct_web, keys):
    """A redirect is not followed; a robots.txt counts here as everywhere."""
    web = direct_web(
        serving(redirect("https://other.example/keys")),
        serving("{}", "closed.example", "User-agent: *\nDisallow: /\n"),
    )
    moved = keys("check", AGENT, web=web)
    assert moved.returncode == 1
    assert moved.stdout.splitlines() == [URL, "  BAD  status 301; has to be 200"]
    denied = keys("check", "https://closed.example", web=web)
    assert denied.returncode == 2
    assert "  no answer: denied by robots: " in denied.stdout
    assert paths(web.log, "closed.example") == ["closed.example/robots.txt"]
    assert not any(hit.header(name) for hit in web.log for name in FIELDS)


def test_no_file_is_overwritten(tmp_path):
    there, link = tmp_path / "key.pem", tmp_path / "link.pem"
    there.write_text("precious")
    link.symlink_to(tmp_path / "elsewhere.pem")
    for path in (there, link):
        with pytest.raises(CommandError, match="is never overwritten"):
            new_key(str(path))
    assert there.read_text() == "precious"
    assert not (tmp_path / "elsewhere.pem").exists()
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        new_key(str(tmp_path / "nowhere" / "key.pem"))


def test_a_key_that_is_named_twice_is_published_once(tmp_path):
    path = str(tmp_path / "key.pem")
    thumbprint = new_key(path)
    assert [key.public.thumbprint for key in keys_of([path, path])] == [thumbprint]
    with pytest.raises(CommandError, match="cannot be read"):
        keys_of([path, path + ".old"])


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("https://bot.example", URL),
        ("https://bot.example/", URL),
        (URL, URL),
        ("https://bot.example/keys.json", "https://bot.example/keys.json"),
        ("https://bot.example/?a", "https://bot.example/?a"),
    ],
)
def test_where_the_directory_is(given, asked):
    assert directory_url(given) == asked


KEY = PrivateKey.generate()
BODY = directory_body([KEY.public])
NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC).timestamp()
HEADERS = directory_fields([KEY], "bot.example", BODY, NOW, 86_400)
FIELDS_THERE = {name.lower(): value for name, value in HEADERS.items()}


def found(*, now=NOW, key_id="", url=URL, status=200, body=BODY, **fields):
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    response = DirectoryResponse(url, status, FIELDS_THERE | named, body)
    return [str(each) for each in checks(response, "bot.example", key_id, now)]


def test_a_sound_directory():
    key = KEY.public.thumbprint
    assert found(key_id=key) == [
        "  ok   status 200",
        f"  ok   Content-Type {DIRECTORY_TYPE}",
        f"  ok   key {key}: signed, until 2026-11-22 23:59:55 UTC",
        f"  ok   the key of WALSH_SIGNING_KEY, {key}, is published here",
    ]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"status": 404}, "status 404; has to be 200"),
        ({"content_type": "application/json"}, f"application/json; has to be {DIRECTORY_TYPE}"),
        ({"content_type": ""}, "Content-Type (none)"),
        ({"body": b"<html>"}, "the directory is no JSON"),
        ({"body": b'{"keys": []}'}, "the directory has no Ed25519 key"),
        ({"body": BODY + b"\n"}, "the Content-Digest is not that of the directory"),
        ({"signature": ""}, "the signature is not by the key"),
        ({"signature_input": ""}, "there is no signature by it"),
        ({"now": NOW + 90_000}, "the signature expired"),
        ({"key_id": "another"}, "the key of WALSH_SIGNING_KEY, another, is not published here"),
    ],
)
def test_what_is_not_sound(answer, line):
    (bad,) = [each for each in found(**answer) if each.startswith("  BAD")]
    assert line in bad


def test_another_place_may_have_another_type():
    assert all(each.startswith("  ok") for each in found(url=AGENT + "k", content_type="text/x"))
