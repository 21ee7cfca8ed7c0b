"""A host without a valid certificate gets no request (decision 22)."""

from dataclasses import replace

import pytest

from tests.helpers.sites import LIST_URL, blocklist, judge, rows_of, site, trouble
from walsh_scrapy.testing.site import REFUSED, Answer, Down
from walsh_scrapy.testing.web import Certificate, Site, redirect

BAD = {
    "expired.example": (Certificate.EXPIRED, "has expired"),
    "wrong.example": (Certificate.WRONG_NAME, "is for another host"),
    "nameless.example": (Certificate.NAMELESS, "is for another host"),
    "stranger.example": (
        Certificate.UNKNOWN_CA,
        "is signed by somebody whom this machine does not trust",
    ),
    "itself.example": (
        Certificate.SELF_SIGNED,
        "is self-signed, and this machine does not trust it",
    ),
}


def secure(host, kind=Certificate.GOOD, robots="", **pages):
    return replace(site(host, robots, **pages), tls=kind)


def feeds(*hosts):
    return [f"https://{host}/feed" for host in hosts]


def in_state(result):
    """Outcome and detail of every source, by its host."""
    found = rows_of(result, "SELECT url, outcome, detail FROM sources")
    return {url.split("/")[2]: (outcome, detail) for url, outcome, detail in found}


def handshakes(result, host):
    return [each.handshake for each in result.connections if each.host == host]


#: Against verification; the class cannot even be imported, and is never used.
FORCED = {
    "DOWNLOAD_VERIFY_CERTIFICATES": False,
    "DOWNLOADER_CLIENTCONTEXTFACTORY": f"{__name__}.Blind",
    "WALSH_ROBOTS_UNREACHABLE": "disallow",
}
OPERATOR = Site(
    "operator.example",
    pages={"/blocklist.json": blocklist("good.example")},
    tls=Certificate.WRONG_NAME,
)


@pytest.mark.parametrize("settings", [{}, FORCED], ids=["default", "forced"])
def test_only_hosts_with_a_valid_certificate_are_read(direct_web, crawl, settings):
    """A crawl of one good host, one that leads to a bad one, several bad ones, and a blocklist."""
    bad = [secure(host, kind) for host, (kind, _) in BAD.items()]
    web = direct_web(
        *bad,
        OPERATOR,
        secure("good.example", robots="User-agent: *\nDisallow: /no\n"),
        secure("old.example", feed=redirect("https://lapsed.example/feed")),
        secure("lapsed.example", Certificate.EXPIRED),
    )
    given = settings | {"WALSH_BLOCKLIST_URL": LIST_URL.replace("http:", "https:")}
    result = crawl(web, sources=feeds(*BAD, "old.example", "good.example"), settings=given)
    assert_good_host_is_read(result)
    assert_bad_certificates_are_named(result)
    why = "TLS: the certificate of operator.example is for another host"
    assert f"the blocklist could not be fetched: {why}" in result.stderr
    judge(result)


def assert_good_host_is_read(result):
    assert result.exit_code == 0
    assert {hit.host for hit in result.log} == {"good.example", "old.example"}
    assert [hit.path for hit in result.log if hit.host == "good.example"] == [
        "/robots.txt",
        "/feed",
    ]
    shaken = handshakes(result, "good.example")
    assert shaken == ["full", *["resumed"] * (len(shaken) - 1)]
    assert result.stats["walsh/entries/new"] == len(result.items) == 2


def assert_bad_certificates_are_named(result):
    """Each reason names its host, and no request was retried."""
    told = in_state(result)
    assert told.pop("good.example") == ("fetched", "")
    lapsed = "TLS: the certificate of lapsed.example has expired"
    assert told.pop("old.example") == ("failed", lapsed)
    for host, (_, flaw) in BAD.items():
        sentence = f"TLS: the certificate of {host} {flaw}"
        assert told.pop(host) == ("failed", sentence)
        assert f"WARNING https://{host}/feed failed: {sentence}\n" in result.stderr
        assert handshakes(result, host) == ["failed"]
    assert told == {}
    assert result.stats["walsh/sources/failed"] == len(BAD) + 1
    assert "Traceback" not in result.stderr


NO_TLS = {
    "expired.example": "TLS: the certificate of expired.example has expired",
    "alert.example": "TLS: no secure connection with alert.example: ",
    "mute.example": "mute.example did not answer the TLS handshake in 1 s",
    "new.example": "TLS: no secure connection with new.example: ",
    "refused.example": "refused.example refused the connection",
}


def test_a_host_without_tls_or_that_refuses_costs_one_attempt_a_run(direct_web, crawl, again):
    """Each has five sources, and is well in the next run."""
    web = direct_web(
        secure("expired.example", Certificate.EXPIRED),
        replace(secure("alert.example"), down=Down.ALERT),
        replace(secure("mute.example"), down=Down.MUTE),
        replace(secure("new.example"), tls_version="1.3"),
        replace(site("refused.example"), dns=Answer((REFUSED,))),
        site("blog.example"),
    )
    sources = [f"https://{host}/{name}" for host in NO_TLS for name in ("feed", *"abcd")]
    sources += ["http://blog.example/feed"]
    settings = {"DOWNLOAD_TLS_MAX_VERSION": "TLSv1.2"} | trouble("ImpatientConnections")
    first = crawl(web, sources=sources, settings=settings)
    counts = {name: first.stats[f"walsh/sources/{name}"] for name in ("fetched", "failed")}
    assert counts == {"fetched": 1, "failed": 5}
    assert first.stats["walsh/sources/deferred"] == 20
    contacted = [each.host for each in first.connections if each.host != "blog.example"]
    assert sorted(contacted) == sorted(NO_TLS.keys() - {"refused.example"})
    asked = rows_of(first, "SELECT host, url, error FROM requests WHERE error != ''")
    assert sorted(host for host, _, _ in asked) == sorted(NO_TLS)
    for host, url, error in asked:
        assert url == f"https://{host}/robots.txt"
        assert error.startswith(NO_TLS[host])
        assert first.stderr.count(f" failed: {error}\n") == 1
        assert f"INFO https://{host}/robots.txt" not in first.stderr
    counted = dict(rows_of(first, "SELECT host, refusals + unreachable FROM hosts"))
    assert counted == dict.fromkeys((*NO_TLS, "blog.example"), 0) | {"mute.example": 1}
    assert rows_of(first, "SELECT host FROM hosts WHERE hold_until") == []

    web.add(*(secure(host) for host in NO_TLS))
    second = again(web, sources=sources[::5], settings=settings)
    assert second.stats["walsh/sources/fetched"] == 6
    judge(second, robots_first=False)


def test_without_the_private_ca_no_certificate_is_accepted(direct_web, crawl, tmp_path):
    (tmp_path / "nobody.pem").write_bytes(b"")
    web = direct_web(secure("blog.example"))
    result = crawl(
        web,
        sources=feeds("blog.example"),
        environment={"SSL_CERT_FILE": str(tmp_path / "nobody.pem")},
    )
    _, detail = in_state(result)["blog.example"]
    assert detail.endswith(" is signed by somebody whom this machine does not trust")
