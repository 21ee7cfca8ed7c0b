"""A project's own code opens neither robots.txt nor the blocklist (decision 30).

Middlewares, listeners and download handlers of the project do to each request what the settings of
`tests.helpers.interference` say. The log of the servers says what came of it.
"""

import gzip
from dataclasses import replace
from itertools import count, cycle

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.helpers.interference import ORDERS, PLACES, Handler, interfering
from tests.helpers.sites import (
    ADDON,
    AGENT,
    IDENTITY,
    LIST_URL,
    OUR_HANDLER,
    blocklist,
    log_lines,
    paths,
    rows_of,
    write_project,
)
from walsh_scrapy import identity
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect

PRIVATE = "User-agent: *\nDisallow: /private\n"
GZIP = {"Content-Encoding": "gzip"}
THEIRS = {"DOWNLOAD_HANDLERS": dict.fromkeys(("http", "https"), f"{Handler.__module__}.Handler")}
PACKED = Reply(gzip.compress(PRIVATE.encode()), headers=GZIP)
#: The forms in which a robots.txt comes.
FORMS = {
    "plain": PRIVATE,
    "packed": PACKED,
    "long": PRIVATE + "# x\n" * 150_000,
    "moved": redirect("/rules"),
    "busy": [Reply(status=503), PRIVATE],
}
PAGES = {"/": Reply("x", content_type="text/html"), "/private": "x", "/rules": PRIVATE}
LISTED = "optedout.example"


def site(host, form="plain"):
    return Site(host, FORMS[form], PAGES)


def operator(document=None):
    pages = {"/blocklist.json": document or blocklist(LISTED), "/list.json": blocklist(LISTED)}
    return Site("operator.example", "", pages)


def polite(result, *hosts, **terms):
    denied = [f"http://{host}/private" for host in hosts]
    given = {
        "user_agent": AGENT,
        "serial": False,
        "robots_exempt": [LIST_URL],
        "blocked": [LISTED],
        "denied": denied,
    }
    assert list(violations(result.log, **given | terms)) == []


def warnings_of(result):
    lines = [line for line in result.stderr.splitlines() if " WARNING: " in line]
    return [line.partition(" WARNING: ")[2] for line in lines]


def places():
    for kind in PLACES:
        if kind in ("request", "response", "exception"):
            yield from (f"{order} {kind}" for order in ORDERS)
        else:
            yield kind


@st.composite
def acts(draw):
    """One to three acts at places of one host."""
    chosen = draw(st.lists(st.sampled_from(list(places())), min_size=1, max_size=3))
    kinds = [place.rpartition(" ")[2] for place in chosen]
    return [
        (place, draw(st.sampled_from(PLACES[kind])))
        for place, kind in zip(chosen, kinds, strict=True)
    ]


NUMBERS = count()
HOSTS = [f"h{number}.example" for number in range(16)]
OF_HOSTS = st.fixed_dictionaries(dict.fromkeys(HOSTS, acts()))
OF_OPERATOR = st.one_of(st.just([]), st.just([]), acts())
#: A crawl is too dear to look for a smaller one that fails too.
COSTLY = settings(
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def plan(tmp_path, of_hosts, of_list, **given):
    """The sites of a crawl in which this is done to requests, and the options of the crawl."""
    settings = {**ADDON, **IDENTITY, **interfering(of_hosts | {"operator.example": of_list})}
    project = write_project(tmp_path / "project", settings | given)
    sites = [operator(), site(LISTED)]
    sites += [site(host, form) for host, form in zip(HOSTS, cycle(FORMS), strict=False)]
    urls = [f"http://{host}{path}" for host in HOSTS for path in ("/private", "/")]
    options = {
        "WALSH_STATE_URL": f"sqlite:///{tmp_path}/{next(NUMBERS)}.sqlite3",
        "WALSH_BLOCKLIST_URL": LIST_URL,
        "WALSH_SERIAL": False,
        "WALSH_MAX_RETRIES": 1,
        "WALSH_ROBOTS_UNREACHABLE": "disallow",
    }
    return sites, {
        "project": project,
        "spider": "pages",
        "arguments": {"urls": " ".join([*urls, f"http://{LISTED}/"])},
        "settings": options,
        "timeout": 100.0,
    }


@settings(COSTLY, max_examples=12)
@given(OF_HOSTS, OF_OPERATOR)
def test_no_code_of_a_project_opens_a_document(simulated, tmp_path, installed, of_hosts, of_list):
    sites, options = plan(tmp_path, of_hosts, of_list)
    (result,) = simulated(*sites, **options)
    polite(result, *HOSTS)


@pytest.mark.parametrize("handler", [OUR_HANDLER, THEIRS], ids=["ours", "theirs"])
@settings(COSTLY, max_examples=3)
@given(OF_HOSTS, OF_OPERATOR)
def test_no_code_of_a_project_opens_a_document_on_sockets(
    direct_web, crawl, tmp_path, installed, handler, of_hosts, of_list
):
    sites, options = plan(tmp_path, of_hosts, of_list, **handler)
    result = crawl(direct_web(*sites), **options)
    polite(result, *HOSTS)


OURS = "walsh_scrapy.downloadermiddlewares"
ROBOTS_ALONE = {
    "ADDONS": {},
    "USER_AGENT": AGENT,
    "ROBOTSTXT_OBEY": False,
    "REFERER_ENABLED": False,
    "WALSH_BLOCKLIST_URL": "",
}


@pytest.fixture
def run(direct_web, crawl, tmp_path, installed):
    """Request /private and / of sites whose names say what is done to their requests."""

    def run_acts(acts, *sites, gates=(), document=None, **given):
        web = direct_web(operator(document), *sites)
        interference = interfering(acts)
        interference["DOWNLOADER_MIDDLEWARES"] |= dict(gates)
        project = write_project(
            tmp_path / "project", {**ADDON, **IDENTITY, "RETRY_TIMES": 0, **interference, **given}
        )
        hosts = [host.name for host in sites]
        urls = [f"http://{host}{path}" for host in hosts for path in ("/private", "/")]
        options = {"WALSH_BLOCKLIST_URL": LIST_URL} if document else {}
        result = crawl(
            web, "pages", project=project, arguments={"urls": " ".join(urls)}, settings=options
        )
        polite(result, *hosts, interval=0.0 if gates else 1.0)
        return result

    return run_acts


def fetched(result):
    """The hosts whose robots.txt let the other page pass."""
    return {hit.host.partition(".")[0] for hit in result.log if hit.path == "/"}


STOPS = [
    (place, act) for place in ("headers_received", "bytes_received") for act in ("stop", "fail")
]


@pytest.mark.parametrize("form", ["plain", "packed"])
def test_our_handler_stops_no_document(run, form):
    hosts = {f"{place[0]}-{act}.example": [(place, act)] for place, act in STOPS}
    result = run(hosts, *(site(host, form) for host in hosts), **OUR_HANDLER)
    assert fetched(result) == {host.partition(".")[0] for host in hosts}
    assert not [line for line in warnings_of(result) if "robots.txt" in line]


@pytest.mark.parametrize("gates", [(), [(f"{OURS}.robots.RobotsMiddleware", 100)]], ids=len)
@pytest.mark.parametrize("handler", [OUR_HANDLER, THEIRS], ids=["ours", "theirs"])
def test_every_form_is_obeyed_whatever_becomes_of_it(run, gates, handler):
    forms = [form for form in FORMS if form != "busy" or not gates]
    given = handler | ROBOTS_ALONE if gates else handler
    hosts = {f"{form}.example": [] for form in forms}
    for order in (50, 595, 895):
        acts = [(f"{order} response", "headers"), (f"{order} response", "answer")]
        hosts |= {f"{form}-{order}.example": acts for form in forms}
    sites = [site(host, host.partition(".")[0].partition("-")[0]) for host in hosts]
    result = run(hosts, *sites, gates=gates, WALSH_SERIAL=False, **given)
    assert fetched(result) == {host.partition(".")[0] for host in hosts}


def test_a_project_that_cuts_off_robots_txt_is_warned(run):
    hosts = {f"{place[0]}-{act}.example": [(place, act)] for place, act in STOPS}
    result = run(hosts, *map(site, hosts), WALSH_SERIAL=False, **THEIRS)
    assert fetched(result) == set()
    warnings = [line for line in warnings_of(result) if "robots.txt was cut off" in line]
    assert sorted(line.split("/")[2] for line in warnings) == sorted(hosts)
    assert all("StopDownload" in line for line in warnings)
    assert {item["trouble"] for item in result.items} == {"Denied"}


def test_a_robots_txt_that_was_stopped_after_500_kib_is_complete(run):
    # Both listeners stop the download at the same piece, and theirs comes first.
    hosts = {"stop.example": [], "fail.example": [("bytes_received", "late")]}
    result = run(hosts, *(site(host, "long") for host in hosts), **THEIRS)
    assert fetched(result) == {"stop", "fail"}


@pytest.mark.parametrize("handler", [OUR_HANDLER, THEIRS], ids=["ours", "theirs"])
def test_a_document_that_a_project_keeps_back_is_named_once(run, handler):
    hosts = {
        "answers.example": [("50 request", "answer")],
        "raises.example": [("895 request", "raise")],
        "ignores.example": [("105 request", "ignore")],
        "replaces.example": [("700 request", "other")],
        "wipes.example": [("950 request", "wipe")],
        "wipes-first.example": [("3 request", "wipe")],
        "hides.example": [("950 request", "wipe"), ("0 exception", "answer")],
    }
    result = run(hosts, *map(site, hosts), WALSH_SERIAL=False, **handler)
    assert fetched(result) == set()
    for host in hosts:
        (warning,) = [line for line in warnings_of(result) if f"{host}/robots.txt" in line]
        assert "dont_obey_robotstxt" in warning
    assert paths(result.log, "answers.example") == []


def test_a_handler_that_raises_is_a_host_that_does_not_answer(run):
    hosts = {
        "down.example": [("handler", "raise")],
        "made-up.example": [("handler", "raise"), ("0 exception", "answer")],
        "ignored.example": [("handler", "ignore"), ("870 exception", "answer")],
    }
    result = run(hosts, *map(site, hosts), WALSH_SERIAL=False, WALSH_MAX_RETRIES=0, **THEIRS)
    assert result.stats["walsh/robots/unreachable"] == 3
    assert "walsh/robots/good" not in result.stats


LIST = blocklist(LISTED)
LISTS = {
    "plain": LIST,
    "packed": replace(LIST, body=gzip.compress(LIST.content()), headers=GZIP),
    "moved": redirect("/list.json"),
}
REWRITTEN = {"operator.example": [("895 response", "headers"), ("50 response", "answer")]}


@pytest.mark.parametrize("form", LISTS)
@pytest.mark.parametrize("handler", [OUR_HANDLER, THEIRS], ids=["ours", "theirs"])
def test_a_list_is_adopted_whatever_becomes_of_it(run, form, handler):
    result = run(REWRITTEN, site("a.example"), site(LISTED), document=LISTS[form], **handler)
    assert log_lines(result, "adopted", "1 domain")
    assert fetched(result) == {"a"}


def test_a_list_that_was_stopped_is_adopted_from_our_handler(run):
    acts = {"operator.example": [("bytes_received", "fail")]}
    result = run(acts, site("a.example"), site(LISTED), document=LIST, **OUR_HANDLER)
    assert fetched(result) == {"a"}


@pytest.mark.parametrize("is_unchanged", [True, False])
def test_the_last_list_is_used_if_a_project_withholds_it(run, crawl, is_unchanged):
    document = replace(LIST, etag='"1"')
    run({}, site("a.example"), site(LISTED), document=document)
    rows_of(crawl, "UPDATE blocklist SET requested_at = requested_at - 86400")
    acts = [("50 response", "status")] if is_unchanged else [("700 request", "answer")]
    sites = (site("b.example"), site(LISTED))
    result = run({"operator.example": acts}, *sites, document=document)
    assert result.exit_code == 0
    assert fetched(result) == {"b"}
    assert ("walsh/conditional/not_modified" in result.stats) is is_unchanged
    assert ("walsh/blocklist/failed" in result.stats) is not is_unchanged


@pytest.mark.parametrize(
    ("acts", "handler", "document"),
    [
        ([("700 request", "answer")], {}, "robots.txt"),
        ([("headers_received", "stop")], THEIRS, "robots.txt"),
        ([("bytes_received", "fail")], THEIRS, "blocklist.json"),
    ],
    ids=["answered", "stopped", "failed"],
)
def test_without_a_list_nothing_else_is_requested(run, acts, handler, document):
    acts = {"operator.example": acts}
    result = run(acts, site("a.example"), site(LISTED), document=LIST, **handler)
    assert result.exit_code == 1
    assert {hit.host for hit in result.log} <= {"operator.example"}
    assert result.stats["finish_reason"] == "gate_failed"
    assert f"http://operator.example/{document} was " in result.stderr
    assert {item["trouble"] for item in result.items} <= {"StillDue"}


def test_a_blocklist_gate_alone_fails_without_its_list(run):
    gates = [(f"{OURS}.blocklist.BlocklistMiddleware", 100)]
    acts = {"operator.example": [("50 request", "wipe")]}
    result = run(acts, site("a.example"), gates=gates, document=LIST, **ROBOTS_ALONE)
    assert result.log == []
    assert result.stats["finish_reason"] == "gate_failed"


def test_the_first_page_that_a_middleware_answers_is_named(run):
    hosts = {f"{name}.example": [("700 request", "answer page")] for name in "ab"}
    result = run(hosts, *map(site, hosts))
    assert [hit.path for hit in result.log] == ["/robots.txt"] * 2
    (warning,) = [line for line in warnings_of(result) if "cannot be paced" in line]
    assert "DOWNLOAD_HANDLERS" in warning


def test_declared_sources_over_https_are_judged_by_the_true_file(
    direct_web, crawl, tmp_path, installed
):
    acts = {
        "rewritten.example": [("895 response", "headers"), ("50 response", "answer")],
        "stopped.example": [("bytes_received", "fail")],
        "answered.example": [("700 request", "answer")],
    }
    named = {"WALSH_USER_AGENT": identity.USER_AGENT}
    project = write_project(tmp_path / "project", ADDON | named | interfering(acts))
    sites = [replace(site(host, "packed"), tls=Certificate.GOOD) for host in acts]
    sources = [f"https://{host}{path}" for host in acts for path in ("/private", "/")]
    result = crawl(direct_web(*sites), "declared", project=project, sources=sources)
    asked = {"rewritten.example/", "stopped.example/"}
    asked |= {f"{path}robots.txt" for path in asked}
    assert set(paths(result.log)) == asked
    assert result.stats["walsh/sources/denied/robots"] == 4
