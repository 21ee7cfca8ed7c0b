"""The key of a crawl: which files are refused, and what is signed where a request is sent."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from scrapy import Spider
from scrapy.settings import Settings

from walsh_scrapy.crawl.messages import read_signer
from walsh_scrapy.crawl.startup import start_problems
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.signing import PrivateKey

AGENT = "https://bot.example/"
OURS = "walsh_scrapy.downloadhandler.DownloadHandler"
NOW = 1_800_000_000.0


def options(**settings):
    return Options.from_settings(Settings({f"WALSH_{key}": val for key, val in settings.items()}))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(PrivateKey.generate().pem)
    path.chmod(0o600)
    return path


def test_without_a_key_nothing_signs():
    assert read_signer(options(SIGNATURE_AGENT=AGENT)) is None


def test_each_call_signs_anew_and_never_over_http(file):
    signer = read_signer(options(SIGNING_KEY=str(file), SIGNATURE_AGENT=AGENT))
    assert signer.key_id == PrivateKey.from_pem(file.read_bytes()).public.thumbprint
    url = "https://me:secret@Blog.example:443/a?b#c"
    first, second = (signer.fields(url, NOW) for _ in range(2))
    assert first["Signature-Agent"] == 'sig1="https://bot.example/"'
    assert first.keys() == second.keys()
    assert first["Signature"] != second["Signature"], "a retry has its own nonce"
    plain = signer.fields("http://blog.example/a", NOW)
    assert plain == dict.fromkeys(first)


def test_a_file_that_is_no_usable_key(tmp_path):
    rsa = generate_private_key(65537, 1024).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    other, empty = tmp_path / "rsa.pem", tmp_path / "empty.pem"
    other.write_bytes(rsa)
    empty.touch()
    for path in (other, empty):
        path.chmod(0o600)
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, reason in (
        (other, "rsa.pem holds a key of another type than Ed25519"),
        (empty, "empty.pem holds no private key in PEM"),
        (tmp_path / "none.pem", "none.pem cannot be read: No such file"),
        (folder, "folder cannot be read: Is a directory"),
        (Path("/dev/zero"), "/dev/zero"),
    ):
        with pytest.raises(BadSetting, match=f"^WALSH_SIGNING_KEY: .*{reason}"):
            read_signer(options(SIGNING_KEY=str(path), SIGNATURE_AGENT=AGENT))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o610])
def test_a_key_that_others_may_use(file, mode):
    file.chmod(mode)
    with pytest.raises(BadSetting, match=rf"\(mode {mode:o}\); run: chmod 600 {file}"):
        read_signer(options(SIGNING_KEY=str(file), SIGNATURE_AGENT=AGENT))


@pytest.mark.parametrize(
    "url",
    [
        "http://bot.example/",
        "bot.example",
        "https://",
        'https://bot.example/"',
        "https://bot.example/\\",
        "https://bot.example/@me",
        "https://bot.example/#keys",
        "https://b\xf6t.example/",
    ],
)
def test_where_the_keys_are_has_to_be_an_https_url(url):
    with pytest.raises(BadSetting, match="WALSH_SIGNATURE_AGENT"):
        options(SIGNATURE_AGENT=url)


def test_a_url_with_a_password_is_refused_and_not_shown():
    with pytest.raises(BadSetting) as refused:
        options(SIGNATURE_AGENT="https://me:secret@bot.example/")
    assert "secret" not in str(refused.value)


def test_a_key_needs_the_place_of_its_directory():
    with pytest.raises(BadSetting, match="because WALSH_SIGNING_KEY is set"):
        options(SIGNING_KEY="key.pem")


@pytest.mark.parametrize(
    ("handler", "problems"),
    [(OURS, 0), ("scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler", 1), (None, 1)],
)
def test_only_our_handler_signs(handler, problems):
    """In a project that takes single gates: another handler would send what nobody signed."""
    settings = Settings(
        {
            "WALSH_SIGNING_KEY": "key.pem",
            "WALSH_SIGNATURE_AGENT": AGENT,
            "WALSH_USER_AGENT": "Example-Bot/1.0",
            "WALSH_UA_TOKEN": "Example-Bot",
            "USER_AGENT": "Example-Bot/1.0",
            "DOWNLOAD_HANDLERS": {"https": handler},
        }
    )
    found = [str(error) for error in start_problems(settings, Spider)]
    assert len(found) == problems
    assert all(error.startswith("DOWNLOAD_HANDLERS is ") for error in found)
