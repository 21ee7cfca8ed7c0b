"""`walsh keys`: from a new key to a directory that a verifier accepts."""

import json
import re
import stat
from collections import namedtuple
from types import SimpleNamespace

import pytest
from http_message_signatures import HTTPMessageVerifier, algorithms

from tests.helpers.keydirectory import DirectoryKeys
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.standalone import read_keys, write_new_key

AGENT = "https://bot.example/"
URL = "https://bot.example/.well-known/http-message-signatures-directory"
Request = namedtuple("Request", "method url headers")


@pytest.fixture
def keys(run_command):
    """Run `walsh keys`."""

    def run(*arguments, **settings):
        done = run_command("keys", *arguments, settings=settings)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_from_a_new_key_to_a_directory_that_verifies(keys, tmp_path):
    """Two keys, as during a rotation: the old one is published with the new one."""
    files = [tmp_path / "new.pem", tmp_path / "old.pem"]
    results = [keys("new", file) for file in files]
    thumbprints = [re.search(r"id ([\w-]+)", done.stdout)[1] for done in results]
    assert [str(file) in done.stdout for file, done in zip(files, results, strict=True)] == [
        True
    ] * 2
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    settings = {"WALSH_SIGNING_KEY": files[0], "WALSH_SIGNATURE_AGENT": AGENT}
    body = keys("directory", *files, **settings).stdout
    assert [jwk["kid"] for jwk in json.loads(body)["keys"]] == thumbprints
    assert '"d"' not in body
    printed = keys("directory", *files, "--headers", "--days", "7", **settings).stdout
    headers = dict(line.split(": ", 1) for line in printed.splitlines())
    # Verified by http-message-signatures, as the response to a request for the directory.
    answer = SimpleNamespace(
        status_code=200, headers=headers, request=Request("GET", URL, {"Host": "bot.example"})
    )
    verifier = HTTPMessageVerifier(
        signature_algorithm=algorithms.ED25519, key_resolver=DirectoryKeys(body)
    )
    proofs = verifier.verify(
        answer,
        expect_tag="http-message-signatures-directory",
        require_components=['"@authority";req', "content-digest"],
        body=body.encode(),
    )
    assert [proof.parameters["keyid"] for proof in proofs] == thumbprints
    lasting = {proof.parameters["expires"] - proof.parameters["created"] for proof in proofs}
    assert lasting == {7 * 86_400}


def test_directory_without_a_key_is_refused(run_command):
    done = run_command("keys", "directory")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no key given" in done.stderr


def test_no_file_is_overwritten(tmp_path):
    there, link = tmp_path / "key.pem", tmp_path / "link.pem"
    there.write_text("precious")
    link.symlink_to(tmp_path / "elsewhere.pem")
    for path in (there, link):
        with pytest.raises(CommandError, match="already exists"):
            write_new_key(str(path))
    assert there.read_text() == "precious"
    assert not (tmp_path / "elsewhere.pem").exists()
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        write_new_key(str(tmp_path / "nowhere" / "key.pem"))


def test_a_key_that_is_named_twice_is_published_once(tmp_path):
    path = str(tmp_path / "key.pem")
    thumbprint = write_new_key(path)
    assert [key.public.thumbprint for key in read_keys([path, path])] == [thumbprint]
    with pytest.raises(CommandError, match="cannot be read"):
        read_keys([path, path + ".old"])
