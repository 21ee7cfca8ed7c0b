"""A host without a valid certificate gets no request (decision 22)."""

import sqlite3
from dataclasses import replace

import pytest

from tests.contract.conftest import LIST_URL, blocklist, judge, site
from walsh_scrapy.testing.web import Certificate, Site, redirect

BAD = {
    "expired.example": (Certificate.EXPIRED, "expired on 2025-01-01"),
    "wrong.example": (Certificate.WRONG_NAME, "is for other.example"),
    "nameless.example": (Certificate.NAMELESS, "is for no host"),
    "stranger.example": (
        Certificate.UNKNOWN_CA,
        "is signed by Nobody's CA, which this machine does not trust",
    ),
    "itself.example": (
        Certificate.SELF_SIGNED,
        "is self-signed, which this machine does not trust",
    ),
}


def secure(host, kind=Certificate.GOOD, robots="", **pages):
    return replace(site(host, robots, **pages), tls=kind)


def feeds(*hosts):
    return [f"https://{host}/feed" for host in hosts]


def in_state(result):
    """Outcome and detail of every source, by its host."""
    database = sqlite3.connect(result.folder.parent / "walsh.sqlite3")
    rows = database.execute("SELECT url, outcome, detail FROM sources").fetchall()
    database.close()
    return {url.split("/")[2]: (outcome, detail) for url, outcome, detail in rows}


def handshakes(result, host):
    return [each.handshake for each in result.connections if each.host == host]


@pytest.mark.parametrize(
    "settings", [{}, {"DOWNLOAD_VERIFY_CERTIFICATES": False}], ids=["default", "forced"]
)
def test_only_hosts_with_a_valid_certificate_are_read(direct_web, crawl, settings):
    """A crawl of one good host and several bad ones, also with settings against verification."""
    bad = [secure(host, kind) for host, (kind, _) in BAD.items()]
    web = direct_web(*bad, secure("good.example", robots="User-agent: *\nDisallow: /no\n"))
    result = crawl(web, sources=feeds(*BAD, "good.example"), settings=settings)
    assert_good_host_is_read(result)
    assert_bad_certificates_are_named(result)
    judge(result)


def assert_good_host_is_read(result):
    assert result.exit_code == 0
    assert [hit.url for hit in result.log] == [
        "https://good.example/robots.txt",
        "https://good.example/feed",
    ]
    shaken = handshakes(result, "good.example")
    assert shaken == ["full", *["resumed"] * (len(shaken) - 1)]
    assert result.stats["walsh/entries/new"] == len(result.items) == 2


def assert_bad_certificates_are_named(result):
    """Each reason names its host, and no request was retried."""
    told = in_state(result)
    assert told.pop("good.example") == ("fetched", "")
    for host, (_, flaw) in BAD.items():
        sentence = f"TLS: the certificate of {host} {flaw}"
        assert told.pop(host) == ("failed", sentence)
        assert f"WARNING https://{host}/feed failed: {sentence}\n" in result.stderr
        # Once for robots.txt, which WALSH_ROBOTS_UNREACHABLE lets be, and once for the feed.
        assert handshakes(result, host) == ["failed", "failed"]
    assert told == {}
    assert result.stats["walsh/sources/failed"] == len(BAD)
    assert "Traceback" not in result.stderr


def test_a_renewed_certificate_is_accepted(direct_web, crawl, again):
    web = direct_web(secure("blog.example", Certificate.EXPIRED))
    first = crawl(web, sources=feeds("blog.example"))
    web.add(secure("blog.example"))
    second = again(web, sources=feeds("blog.example"))
    assert in_state(second) == {"blog.example": ("fetched", "")}
    assert (len(first.items), len(second.items)) == (0, 2)


def test_without_the_private_ca_no_certificate_is_accepted(direct_web, crawl, tmp_path):
    (tmp_path / "nobody.pem").write_bytes(b"")
    web = direct_web(secure("blog.example"))
    result = crawl(
        web,
        sources=feeds("blog.example"),
        environment={"SSL_CERT_FILE": str(tmp_path / "nobody.pem")},
    )
    _, detail = in_state(result)["blog.example"]
    assert detail.endswith(" is signed by Loopback CA, which this machine does not trust")


def test_no_context_factory_switches_verification_off(direct_web, crawl):
    """A class that cannot even be imported: it is never used."""
    web = direct_web(secure("wrong.example", Certificate.WRONG_NAME))
    settings = {"DOWNLOADER_CLIENTCONTEXTFACTORY": f"{__name__}.Blind"}
    result = crawl(web, sources=feeds("wrong.example"), settings=settings)
    assert handshakes(result, "wrong.example") == ["failed", "failed"]
    assert result.log == []


def test_a_redirect_to_a_bad_certificate_names_that_host(direct_web, crawl):
    web = direct_web(
        secure("old.example", feed=redirect("https://expired.example/feed")),
        secure("expired.example", Certificate.EXPIRED),
    )
    result = crawl(web, sources=feeds("old.example"))
    assert in_state(result) == {
        "old.example": (
            "failed",
            "TLS: the certificate of expired.example expired on 2025-01-01",
        )
    }


def test_robots_txt_says_why_it_could_not_be_read(direct_web, crawl):
    web = direct_web(secure("expired.example", Certificate.EXPIRED))
    result = crawl(
        web,
        sources=feeds("expired.example"),
        settings={"WALSH_ROBOTS_UNREACHABLE": "disallow"},
    )
    assert handshakes(result, "expired.example") == ["failed"]
    why = "TLS: the certificate of expired.example expired on 2025-01-01"
    assert f"INFO https://expired.example/robots.txt: {why}\n" in result.stderr


def test_a_blocklist_over_an_invalid_certificate_is_not_adopted(direct_web, crawl):
    url = LIST_URL.replace("http:", "https:")
    web = direct_web(
        Site(
            "operator.example",
            pages={"/blocklist.json": blocklist("blog.example")},
            tls=Certificate.WRONG_NAME,
        ),
        secure("blog.example"),
    )
    result = crawl(web, sources=feeds("blog.example"), settings={"WALSH_BLOCKLIST_URL": url})
    why = "TLS: the certificate of operator.example is for other.example"
    assert f"the blocklist could not be fetched: {why}" in result.stderr
    assert len(result.items) == 2
