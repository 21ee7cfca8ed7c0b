"""`scrapy attest --verify`, `--sign` and `--conformance`: what was judged cannot be forged."""

import base64
import json
import re

import pytest

from tests.tools import test_attest
from tests.tools.test_attest import BEGIN, NOW, compared, judged, named
from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.policy.signing.keys import PrivateKey, directory_body
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.tools import own_code
from walsh_scrapy.tools.attest.digests import FORMAT, check_signature, seal, sign
from walsh_scrapy.tools.attest.owncrawl import OWN_CRAWL
from walsh_scrapy.tools.exits import CommandError

clean, record, scrapy = test_attest.clean, test_attest.record, test_attest.scrapy
RULES = named(test_attest.RULES.encode())
COLUMNS = "sent_at, host, url, gates, seconds, error, purpose, pause, hold"
ADDED = f"INSERT INTO requests (id, {COLUMNS}) SELECT 0, {COLUMNS} FROM requests WHERE id = 3"
LATER = f"{NOW + 300 * DAY}"


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("UPDATE requests SET url = url || 'x' WHERE id = 3", ["requests of 2026-01-01"]),
        ("DELETE FROM requests WHERE id = 3", ["requests of 2026-01-01"]),
        (ADDED, ["requests of 2026-01-01"]),
        ("DELETE FROM denials", ["denials of 2026-01-01", "denials of 2026-01-02"]),
        ("DELETE FROM entries WHERE title_key IS NOT NULL", ["entries of 2026-01"]),
        ("UPDATE runs SET settings = '{}' WHERE id = 1", ["runs"]),
        ("UPDATE runs SET command = 'fetch' WHERE id = 1", ["runs"]),
        ("UPDATE runs SET ended = ended - 10 WHERE id = 1", ["ends"]),
        ("UPDATE runs SET how = 'shutdown' WHERE id = 1", ["ends"]),
        (f"UPDATE runs SET begun = begun - 10, ended = {BEGIN} WHERE id = 1", ["ends", "runs"]),
        ("UPDATE sources SET kind = 'llms'", ["sources"]),
        (f"UPDATE sources SET visited_since = {LATER}", ["sources"]),
        (
            f"UPDATE copies SET body = x'2a' WHERE hash = '{RULES}'",
            [f"copies: {RULES} is not kept"],
        ),
    ],
)
def test_every_row_that_was_judged_is_covered(record, statement, changed):
    url, change = record
    attestation = judged(url)
    change(statement)
    assert sorted(compared(url, attestation).changed) == changed


def test_no_later_row_excuses_what_was_deleted(record):
    """A run that was appended, with settings by which the log would be deleted at once."""
    url, change = record
    attestation = judged(url)
    change(
        "INSERT INTO runs SELECT 3, spider, command, begun, ended + 86400, how, versions,"
        " replace(settings, '\"log_days\": 30', '\"log_days\": 1'), summary FROM runs WHERE id = 1",
        "DELETE FROM requests WHERE sent_at < 1767312000",
    )
    comparison = compared(url, attestation, NOW + 5 * DAY)
    assert comparison.changed == ["requests of 2026-01-01"]
    assert comparison.deleted == []


def test_what_is_deleted_in_time_was_not_changed(record):
    url, change = record
    attestation = judged(url)
    assert attestation["record"]["log_days"] == 30
    change("DELETE FROM requests", "DELETE FROM denials", "DELETE FROM copies")
    comparison = compared(url, attestation, NOW + 40 * DAY)
    assert comparison.changed == []
    assert len(comparison.deleted) == 4


def test_a_copy_that_was_missing_already_is_no_change(record):
    url, change = record
    change(f"DELETE FROM copies WHERE hash = '{RULES}'")
    attestation = judged(url)
    (missing,) = attestation["record"]["missing_copies"]
    assert re.fullmatch(r"\?\d+", missing)
    assert compared(url, attestation).changed == []


@pytest.fixture
def key(tmp_path):
    """The key of the bot, in a file that only its owner reads, and its directory beside it."""
    key, file = PrivateKey.generate(), tmp_path / "key.pem"
    file.touch(0o600)
    file.write_bytes(key.pem)
    (tmp_path / "directory.json").write_bytes(directory_body([key.public]))
    return key


def test_an_attestation_is_signed_by_the_key_of_the_bot(scrapy, key, tmp_path):
    settings = ["-s", f"WALSH_SIGNING_KEY={tmp_path / 'key.pem'}"]
    settings += ["-s", "WALSH_SIGNATURE_AGENT=https://bot.example"]
    status, text, _ = scrapy("--json", "--sign", *settings)
    assert status == 0
    (tmp_path / "attestation.json").write_text(text, "utf-8")
    verify = ["--verify", "attestation.json"]
    status, said, _ = scrapy(*verify)
    assert (status, said.splitlines()[0]) == (
        0,
        "its signature was not checked: name the published directory with --directory FILE",
    )
    status, said, _ = scrapy(*verify, "--directory", "directory.json")
    assert (status, said.splitlines()[0]) == (0, f"signed by {key.public.thumbprint}")
    (tmp_path / "directory.json").write_bytes(directory_body([PrivateKey.generate().public]))
    status, _, error = scrapy(*verify, "--directory", "directory.json")
    assert status == 1
    assert "which the directory does not have" in error


def test_the_signature_is_of_the_format_and_the_seal(record, key):
    signed = sign(judged(record[0]), key)
    value = base64.b64decode(signed["signature"]["value"])
    assert key.public.has_signed(f"{FORMAT} {signed['seal']}", value)


@pytest.mark.parametrize("forgery", ["edited", "other key", "no signature", "no directory"])
def test_a_forged_signature_is_refused(record, key, forgery):
    signed, directory = sign(judged(record[0]), key), directory_body([key.public])
    if forgery == "edited":
        signed["holds"] = not signed["holds"]
        rest = {name: signed[name] for name in signed if name not in ("seal", "signature")}
        signed["seal"] = seal(rest)
        words = "is not by"
    elif forgery == "other key":
        other = sign(signed, PrivateKey.generate())
        signed["signature"]["value"], words = other["signature"]["value"], "is not by"
    elif forgery == "no signature":
        del signed["signature"]
        words = "made without --sign"
    else:
        directory, words = b"{}", "the directory has no list"
    with pytest.raises(CommandError, match=words):
        check_signature(signed, directory)


def test_options_that_do_not_go_together(scrapy, tmp_path):
    (tmp_path / "x.json").write_text("{}", "utf-8")
    cases = {
        ("--sign",): (2, "--sign goes with --json"),
        ("--directory", "x.json"): (2, "--directory goes with --verify"),
        ("--sign", "--verify", "x.json"): (2, "--verify goes with no other option"),
        ("--sign", "--json"): (1, "set WALSH_SIGNING_KEY"),
    }
    for arguments, (status, words) in cases.items():
        code, _, error = scrapy(*arguments)
        assert (code, words in error) == (status, True), (arguments, error)
        assert len(error.splitlines()) == 1


OWN = {
    "format": "walsh-research-conformance/v1",
    "command": OWN_CRAWL,
    "user_agents": [USER_AGENT],
    "code": own_code(),
    "results": [],
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"command": ["curl", "-i"]}, "its command is not"),
        ({"user_agents": ["Other/1.0"]}, "its crawler was not"),
        ({"user_agents": [USER_AGENT, "Other/1.0"]}, "its crawler was not"),
        ({"code": "0" * 64}, "another version of this package"),
    ],
)
def test_a_scorecard_of_something_else_is_refused(scrapy, tmp_path, change, words):
    (tmp_path / "own.json").write_text(json.dumps(OWN), "utf-8")
    (tmp_path / "other.json").write_text(json.dumps(OWN | change), "utf-8")
    assert scrapy("--conformance", "own.json")[0] == 0
    status, _, error = scrapy("--conformance", "other.json")
    assert status == 1
    assert words in error
    assert len(error.splitlines()) == 1
