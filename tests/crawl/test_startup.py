"""The table of gates: the add-on, the checks and the docs agree with it, and each gate is there."""

import asyncio
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirect
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from tests.helpers import ROOT
from tests.helpers.sites import AGENT, IDENTITY
from walsh_scrapy.addon import FORCED, Addon
from walsh_scrapy.crawl.scrapyinternals import Engine
from walsh_scrapy.crawl.startup import (
    GATES,
    SPIDER_GATES,
    Gate,
    Kind,
    middlewares_of,
    middlewares_problem,
    path_of,
    start_problems,
)
from walsh_scrapy.crawl.ticket import Hop, note, ticket_of
from walsh_scrapy.downloadermiddlewares.redirect import RedirectMiddleware
from walsh_scrapy.spider import DeclaringSpider

ADDON = {"walsh_scrapy.Addon": 500}
#: What the gates of a declared crawl replace.
REPLACED = [gate.replaced for gate in Gate if gate.replaced]
SPIDERS = {Kind.DECLARED: DeclaringSpider, Kind.OWN: Spider}


def changed(kind=Kind.DECLARED, **given):
    """The settings of a crawl with the add-on, which has changed them."""
    settings = Settings({"ADDONS": ADDON} | IDENTITY | given)
    Addon.update_pre_crawler_settings(settings)
    Addon(SimpleNamespace(spidercls=SPIDERS[kind])).update_settings(settings)
    return settings


@pytest.fixture
def forced():
    """The settings of a declared crawl of a project that has the add-on and nothing else."""
    return changed()


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("REDIRECT_MAX_TIMES", None, 5),
        ("REDIRECT_MAX_TIMES", 2, 2),
        ("REDIRECT_MAX_TIMES", 0, 0),  # none is followed
        ("DOWNLOAD_TIMEOUT", 0, 60),  # no limit
        ("DOWNLOAD_TIMEOUT", 7, 7),
    ],
)
def test_a_setting_has_a_ceiling(name, given, expected):
    settings = changed(**({} if given is None else {name: given}))
    assert settings[name] == expected


def test_the_docs_name_each_setting_that_is_forced():
    page = (ROOT / "docs" / "reuse.md").read_text("utf-8")
    lists = page.partition("\n### Forced settings\n")[2].partition("\n### ")[0]
    own, also = (
        set(re.findall(r"^- `([A-Z_]+)`: ", names, re.MULTILINE))
        for names in lists.split("In a declared crawl also:")
    )
    given = {"HTTPCACHE_ENABLED": True}
    forced = {kind: names_forced(changed(kind, **given)) for kind in Kind}
    assert forced[Kind.OWN] == own
    assert forced[Kind.DECLARED] | {"HTTPCACHE_ENABLED"} == own | also


def names_forced(settings):
    """The settings of Scrapy with the priority of the add-on; tables of components are not."""
    tables = ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS", "DOWNLOAD_HANDLERS")
    return {
        name
        for name in settings
        if settings.getpriority(name) == FORCED and not name.startswith(("WALSH_", *tables))
    }


def test_the_docs_name_each_gate_that_denies():
    code = [path.read_text("utf-8") for path in (ROOT / "walsh_scrapy").rglob("*.py")]
    names = {name for text in code for name in re.findall(r"\bDenied\(\s*\"(\w+)\"", text)}
    assert len(names) > 3
    page = (ROOT / "docs" / "reuse.md").read_text("utf-8")
    (row,) = re.findall(r"^- `walsh_scrapy.Denied`: (?:.+\n)+?(?=- )", page, re.MULTILINE)
    assert [name for name in names if f"`{name}`" not in row] == []


def test_gates_are_in_their_order_and_importable():
    assert [gate.order for gate in Gate] == sorted(gate.order for gate in Gate)
    for gate in Gate:
        assert path_of(gate.path) == gate.path


@pytest.mark.parametrize("kind", Kind)
def test_the_add_on_sets_the_gates_of_each_kind_of_crawl(kind):
    settings = changed(kind)
    chain = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    assert {path: chain[path] for path in chain if path.startswith("walsh_scrapy.")} == {
        gate.path: gate.order for gate in GATES[kind]
    }
    replaced = [gate.replaced for gate in GATES[kind] if gate.replaced]
    assert [chain[path] for path in replaced] == [None] * len(replaced)
    paths = build_component_list(chain)
    assert [path for path in paths if path.startswith("walsh_scrapy.")] == [
        gate.path for gate in GATES[kind]
    ]
    spider_chain = settings.get_component_priority_dict_with_base("SPIDER_MIDDLEWARES")
    ours = {path: order for path, order in spider_chain.items() if path.startswith("walsh_scrapy.")}
    assert ours == SPIDER_GATES[kind]


def test_a_crawl_of_a_project_has_no_gate_of_what_is_declared():
    ours = set(Gate) - set(GATES[Kind.OWN])
    assert ours == {Gate.SCOPE, Gate.CONDITIONAL, Gate.COMPRESSION}
    assert not set(SPIDER_GATES[Kind.OWN]) & set(SPIDER_GATES[Kind.DECLARED])


def test_the_docs_have_a_row_for_each_gate_in_their_order():
    text = (ROOT / "docs" / "reuse.md").read_text()
    rows = re.findall(r"^- `(\w+\.\w+Middleware)` ", text, re.MULTILINE)
    assert rows == [gate.path.split(".", 2)[2] for gate in Gate]


def test_the_gates_name_no_other_order_than_the_stated_one():
    for gate in Gate:
        told = re.findall(r"\(order (\d+)", load_object(gate.path).__doc__)
        assert set(told) <= {str(gate.order)}, gate


GATE = """
from walsh_scrapy.exceptions import Denied


class NightMiddleware:
    async def process_request(self, request):
        raise Denied("night", "it is night")
"""
ASKED = """
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list

from walsh_scrapy.addon import FORCED, Addon
from walsh_scrapy.crawl.startup import Kind, middlewares_of, middlewares_problem

settings = Settings({"ADDONS": {"walsh_scrapy.Addon": 500}, "USER_AGENT": "Example-Bot/1.0"})
Addon(None).update_settings(settings)
chain = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
paths = [path for path in build_component_list(chain) if path.startswith("walsh_scrapy.")]
at = paths.index("walsh_scrapy.downloadermiddlewares.night.NightMiddleware")
print(chain[paths[at]], paths[at - 1].rpartition(".")[2], paths[at + 1].rpartition(".")[2])
print(middlewares_problem(settings, middlewares_of(settings), Kind.DECLARED))
"""


def test_a_gate_is_one_file_and_one_line(tmp_path):
    package = tmp_path / "walsh_scrapy"
    shutil.copytree(ROOT / "walsh_scrapy", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "downloadermiddlewares" / "night.py").write_text(GATE)
    gates = package / "crawl" / "startup.py"
    line = '    NIGHT = 30, "walsh_scrapy.downloadermiddlewares.night.NightMiddleware"\n'
    text = gates.read_text()
    gates.write_text(text.replace("    ROBOTS = ", f"{line}    ROBOTS = "))
    answer = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""
    chain, problem = answer.stdout.splitlines()
    assert chain == "30 PrivateHostsMiddleware RobotsMiddleware"
    assert problem == "None"


def problem_of(settings):
    """The error about the middlewares, as a text; empty if they are complete."""
    problem = middlewares_problem(settings, middlewares_of(settings), Kind.DECLARED)
    return str(problem or "")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"DOWNLOADER_MIDDLEWARES": {load_object(gate.path): None for gate in Gate}},
        {"DOWNLOADER_MIDDLEWARES": {gate.path: None for gate in Gate}},
        {"DOWNLOADER_MIDDLEWARES": {load_object(gate.path): 700 for gate in Gate}},
        {"DOWNLOADER_MIDDLEWARES": {"walsh_scrapy.downloadermiddlewares.Gone": None}},
        {"DOWNLOADER_MIDDLEWARES": {f"{__name__}.SAME_AS_ROBOTS": None}},
        {"SPIDER_MIDDLEWARES_BASE": {}, "SPIDER_MIDDLEWARES": '{"x": null}'},
    ],
)
def test_every_gate_is_there_once_whatever_a_project_names_it(given):
    assert problem_of(changed(**given)) == ""


@pytest.mark.parametrize(
    ("table", "key", "order", "word"),
    [
        *(
            ("DOWNLOADER_MIDDLEWARES", load_object(gate.path), None, gate.path.split(".")[-1])
            for gate in Gate
        ),
        ("DOWNLOADER_MIDDLEWARES_BASE", load_object(Gate.ROBOTS.path), 1, "RobotsMiddleware"),
        ("DOWNLOADER_MIDDLEWARES", load_object(REPLACED[1]), 601, "must be None"),
        (
            "SPIDER_MIDDLEWARES",
            load_object(Gate.SCOPE.path),
            None,
            "ScopeMiddleware",
        ),
    ],
)
def test_what_changes_the_gates_after_the_add_on_is_refused(table, key, order, word):
    settings = changed()
    settings[table].set(key, order)
    problem = problem_of(settings)
    assert word in problem
    assert ("another add-on" in problem) is (word != "must be None")


def test_a_table_that_is_replaced_after_the_add_on_is_refused():
    settings = changed()
    settings.set("DOWNLOADER_MIDDLEWARES", {}, "addon")
    assert "must be there once" in problem_of(settings)


@pytest.mark.parametrize("name", ["SCHEDULER", "DOWNLOADER", "COMPRESSION_ENABLED"])
def test_a_forced_setting_cannot_be_changed(name, caplog):
    settings = changed()
    value = settings[name]
    settings.set(name, RetryMiddleware, priority=200)
    settings["DOWNLOADER_MIDDLEWARES"].set(Gate.ROBOTS.path, 895, priority=200)
    assert settings[name] == value
    assert settings["DOWNLOADER_MIDDLEWARES"][Gate.ROBOTS.path] == Gate.ROBOTS.order
    assert f"{name} = " in caplog.text


SAME_AS_ROBOTS = load_object(Gate.ROBOTS.path)


def test_a_component_that_cannot_be_imported_has_no_path():
    assert path_of(RetryMiddleware) == path_of("scrapy.downloadermiddlewares.retry.RetryMiddleware")
    assert path_of(f"{__name__}.SAME_AS_ROBOTS") == Gate.ROBOTS.path
    assert path_of("nowhere.Nothing") == path_of("x") == path_of(3) == ""


def test_a_gate_that_a_project_switches_off_is_named(caplog):
    changed(DOWNLOADER_MIDDLEWARES={Gate.PACING.path: 891, REPLACED[0]: None})
    assert f"[{Gate.PACING.path!r}] = 891" in caplog.text
    assert REPLACED[0] not in caplog.text


# A crawl that was ended early is told from the other crawls of its process.


class ScrapysEngine:
    running = True

    def __init__(self):
        self._slot = object()  # the spider is open
        self.reasons = []

    async def close_spider_async(self, reason):
        self.reasons.append(reason)


class Crawler:
    def __init__(self):
        self.engine = ScrapysEngine()


def test_a_crawl_is_open_while_it_may_have_requests():
    crawler = Crawler()
    engine = Engine(crawler)
    assert engine.is_open
    crawler.engine._slot = None  # the spider is closed
    assert not engine.is_open
    crawler.engine = None
    assert not engine.is_open


def test_an_early_end_of_a_crawl_says_nothing_about_others():
    crawler = Crawler()
    first, second = Engine(crawler), Engine(Crawler())

    async def end():
        first.end("state_failed", "the disk is full")
        first.end("machine_trouble", "what follows from that")
        await asyncio.sleep(0)

    asyncio.run(end())
    assert first.ended_early
    assert not second.ended_early
    assert crawler.engine.reasons == ["state_failed"]


# Without the add-on a project may use single gates, with the settings that they need.

SCRAPYS = "scrapy.downloadermiddlewares"
WITHOUT_429_AND_503 = [500, 502, 504, 522, 524, 408]
SINGLE = IDENTITY | {"USER_AGENT": AGENT}


def errors_of(gates, settings):
    """The errors of a project that uses gates, each at its order or at another one."""
    table = {Gate[name].path: order or Gate[name].order for name, order in gates.items()}
    given = SINGLE | {"DOWNLOADER_MIDDLEWARES": table} | settings
    return [str(error) for error in start_problems(Settings(given), Spider)]


@pytest.mark.parametrize(
    ("gates", "settings"),
    [
        ({"IDENTITY": None}, {}),
        ({"IDENTITY": 600}, {"COOKIES_ENABLED": False}),  # Scrapy builds no CookiesMiddleware
        ({"ROBOTS": None, "PACING": None}, {"ROBOTSTXT_OBEY": False}),
        ({"BACKOFF": None, "PACING": None}, {"RETRY_ENABLED": False}),
        ({"BLOCKLIST": 30, "PRIVATEHOSTS": 50}, {}),
    ],
)
def test_single_gates_with_what_they_need_may_start(gates, settings):
    assert errors_of(gates, settings) == []


@pytest.mark.parametrize(
    ("gates", "settings", "words"),
    [
        ({"PACING": None}, {"DOWNLOAD_DELAY": 2.5}, ["DOWNLOAD_DELAY is 2.5", "be 0"]),
        ({"PACING": None}, {"DOWNLOAD_SLOTS": {"a": {"delay": 1}}}, ["DOWNLOAD_SLOTS"]),
        ({"PACING": None}, {"AUTOTHROTTLE_ENABLED": True}, ["AUTOTHROTTLE_ENABLED", "False"]),
        ({"PACING": None}, {"DOWNLOAD_TIMEOUT": 0}, ["DOWNLOAD_TIMEOUT is 0", "above 0"]),
        ({"PACING": None}, {"USER_AGENT": "theirs"}, ["USER_AGENT is 'theirs'"]),
        ({"PACING": 500}, {}, ["PacingMiddleware (890)", "redirect.RedirectMiddleware"]),
        ({"ROBOTS": None}, {"TWISTED_REACTOR": "x"}, ["TWISTED_REACTOR is", "asyncioreactor"]),
        ({"ROBOTS": None}, {"ROBOTSTXT_OBEY": True}, ["RobotsTxtMiddleware must be None"]),
        ({"ROBOTS": None}, {"USER_AGENT": "theirs"}, ["USER_AGENT is 'theirs'", "Example-Bot"]),
        ({"ROBOTS": None, "BLOCKLIST": 200}, {}, ["after BlocklistMiddleware (10)"]),
        ({"PRIVATEHOSTS": 200}, {"ROBOTSTXT_OBEY": True}, [f"before {SCRAPYS}.robotstxt"]),
        ({"BACKOFF": None, "PACING": None}, {}, ["RETRY_HTTP_CODES is", str(WITHOUT_429_AND_503)]),
        (
            {"BACKOFF": None},
            {"RETRY_HTTP_CODES": WITHOUT_429_AND_503},
            ["needs PacingMiddleware (890)"],
        ),
        ({"REDIRECT": None}, {}, [f"{SCRAPYS}.redirect.RedirectMiddleware must be None"]),
        ({"IDENTITY": 600}, {}, ["IdentityMiddleware (860)", "cookies.CookiesMiddleware"]),
        ({"IDENTITY": 400}, {"COOKIES_ENABLED": False}, ["useragent.UserAgentMiddleware"]),
    ],
)
def test_a_single_gate_below_its_floor_is_refused(gates, settings, words):
    (error,) = errors_of(gates, settings)
    assert [word for word in words if word not in error] == []


# R6: what a redirect takes along, before any other gate has a say.

URL = "http://a.example/"


def test_a_redirect_keeps_its_ticket_but_no_referer_and_slot():
    claims = {"redirect_urls": ["http://z.example/"], "redirect_reasons": [302]}
    request = Request(
        URL,
        headers={"Referer": "http://z.example/"},
        meta={"download_slot": "a.example", "redirect_times": -100} | claims,
    )
    note(request, attempt=1, released=True)
    response = Response(URL, 302, headers={"Location": "http://b.example/x"}, request=request)
    gate = RedirectMiddleware(Settings(), crawl=SimpleNamespace(kind=Kind.DECLARED))
    gate.crawler = SimpleNamespace(spider=None)
    hop = gate.process_response(request, response)
    assert isinstance(hop, Request)
    assert hop.url == "http://b.example/x"
    assert "Referer" not in hop.headers
    assert "download_slot" not in hop.meta
    assert hop.meta["redirect_urls"] == [URL], "only what was followed here"
    assert hop.meta["redirect_times"] == 1
    assert ticket_of(hop) == ticket_of(request)._replace(hops=(Hop(URL, 302),), released=False)
    assert request.headers["Referer"] == b"http://z.example/", "the request itself stays as it is"


class OwnRedirect(ScrapyRedirect):
    """What a project has in the place of Scrapy's middleware."""


def test_a_project_is_told_what_to_do_with_its_own_redirect():
    settings = changed(Kind.OWN, DOWNLOADER_MIDDLEWARES={OwnRedirect: 600})
    (problem,) = start_problems(settings, Spider)
    assert f"{__name__}.OwnRedirect must be None" in str(problem)
    assert "another add-on" not in str(problem)


class OwnRobots(RobotsTxtMiddleware):
    """What a project has in the place of Scrapy's middleware."""


def test_a_second_robots_middleware_is_named(forced):
    forced["DOWNLOADER_MIDDLEWARES"].set(OwnRobots, 200)
    messages = [str(problem) for problem in start_problems(forced, DeclaringSpider)]
    assert [line for line in messages if f"{__name__}.OwnRobots" in line]
    assert not [line for line in messages if "ROBOTSTXT_OBEY" in line]
