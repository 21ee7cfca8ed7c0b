"""Bad input stops the start: one line that says what, where and what to do, and no request."""

import json

import pytest
from scrapy.cmdline import execute
from scrapy.utils.project import get_project_settings

from tests.helpers import needs_scrapy_2_19
from tests.helpers.sites import refusal, site
from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.testing.crawl import write_sources

SOURCES = ["http://blog.example/feed"]
needs_json_log = needs_scrapy_2_19("LOG_INSTALL_ROOT_HANDLER")


@pytest.mark.parametrize("option", ["--sources", "--sources=x.toml"])
def test_the_option_of_other_commands_for_the_sources_file(monkeypatch, capsys, option):
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "walsh_scrapy.settings")
    with pytest.raises(SystemExit) as ended:
        execute(["scrapy", "crawl", "feeds", option, "x.toml"], get_project_settings())
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert f"{option} (write -a sources=FILE)" in line


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("missing.toml", None, ["missing.toml", "no such file"]),
        ("s.toml", "[[source]\nurl=", ["s.toml", "line 1"]),
    ],
)
def test_a_wrong_sources_file(loopback_web, crawl, tmp_path, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    line = refusal(crawl(loopback_web(site("blog.example")), sources=tmp_path / name))
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("WALSH_MIN_INTERVAL", "0.1", ["at least 1", "0.1"]),
        ("WALSH_MIN_INTERVAL", "fast", ["number", "fast"]),
        ("WALSH_ROBOTS_UNREACHABLE", "ignore", ['"allow"', "ignore"]),
        ("WALSH_ROBOTS_TTL", "604800", ["86400"]),
        ("WALSH_MIN_INTERVALL", "2", ["did you mean WALSH_MIN_INTERVAL?"]),
        ("WALSH_NONSENSE", "1", ["settings.md"]),
        ("WALSH_UA_TOKEN", "H5-Bot", ["'5'", "'H-Bot'"]),
        ("WALSH_UA_TOKEN", "Example Bot", ["' '", "'ExampleBot'"]),
        ("WALSH_UA_TOKEN", "Bot/1.0", ["'/'", "'Bot'"]),
        ("WALSH_UA_TOKEN", "é", ["'é'", "'Your-Bot'"]),
        ("WALSH_SCOPE", "any", ["Walsh-Research identity"]),
        ("WALSH_SERIAL", "False", ["Walsh-Research identity"]),
        ("WALSH_USER_AGENT", "Mozilla/5.0", ["exactly"]),
        ("WALSH_BLOCKLIST_URL", "/etc/blocklist.json", ["http or https"]),
        ("WALSH_BLOCKLIST_URL", "http://[bad", ["http or https"]),
        ("WALSH_BLOCKLIST_URL", "https://us:pw@list.example/", ["WALSH_BLOCKLIST_URL", "never"]),
        ("WALSH_BLOCKLIST_FILE", "/nowhere/own.txt", ["/nowhere/own.txt: No such file"]),
        ("WALSH_STATE_URL", "sqlite:////tmp/\udcff.sqlite3", ["a line of text"]),
        ("WALSH_BLOCKLIST_URL", "", ["Walsh-Research identity"]),
        ("DOWNLOAD_DELAY", "soon", ["DOWNLOAD_DELAY", "number"]),
        ("DOWNLOAD_DELAY", "nan", ["DOWNLOAD_DELAY", "number"]),
        ("DOWNLOAD_TIMEOUT", "-5", ["DOWNLOAD_TIMEOUT", "at least 0"]),
        ("WALSH_MAX_RETRIES", "1_0", ["whole number"]),
        ("WALSH_MAX_RETRIES", "0", ["at least 1", "Walsh-Research identity"]),
        ("WALSH_BACKOFF_MAX", "2", ["at least 6", "Walsh-Research identity"]),
        ("ADDONS", "{}", ["walsh_scrapy.Addon"]),
        ("TWISTED_REACTOR", "twisted.internet.selectreactor.SelectReactor", ["asyncioreactor"]),
        ("TWISTED_REACTOR_ENABLED", "False", ["True"]),
        ("WALSH_ENABLED", "0", ["ADDONS"]),
        ("WALSH_STATE_URL", "mysterydb://x/y", ["WALSH_STATE_URL"]),
        ("WALSH_STATE_URL", "sqlite:////proc/nowhere/state.sqlite3", ["/proc/nowhere"]),
    ],
)
def test_a_bad_setting(loopback_web, crawl, setting, value, words):
    result = crawl(loopback_web(site("blog.example")), sources=SOURCES, settings={setting: value})
    line = refusal(result)
    assert [word for word in [setting, *words] if word not in line] == []


PLAIN = "from scrapy import Spider\nclass P(Spider):\n    name = 'p'\n    start_urls = ['http://h.example/']\n"


@pytest.mark.parametrize(
    "command", ["fetch {}", "shell --nolog -c 1 {}", "view {}", "runspider p.py"]
)
def test_without_the_gates_scrapy_names_itself_and_not_us(
    loopback_web, run_command, tmp_path, command
):
    (tmp_path / "p.py").write_text(PLAIN)
    words = command.format("http://h.example/").replace("p.py", str(tmp_path / "p.py")).split()
    web = loopback_web(site("h.example"))
    environment = dict(web.environment) | {"BROWSER": "true"}
    off = ("-s", "WALSH_ENABLED=False")
    asked = run_command(*words, *off, environment=environment)
    assert asked.returncode == 0, asked.stderr
    assert {hit.header("User-Agent").partition("/")[0] for hit in web.log} == {"Scrapy"}
    web.clear()
    refused = run_command(*words, *off, "-s", f"USER_AGENT={USER_AGENT}", environment=environment)
    assert refused.returncode == 1
    assert refused.stderr.count("WALSH_ENABLED is False") == 1
    assert web.log == []


@pytest.mark.parametrize("command", ["fetch", "parse", "shell --nolog -c response"])
@pytest.mark.parametrize("spider", ["", "--spider=feeds"])
def test_commands_of_scrapy_request_no_undeclared_url(loopback_web, run_command, command, spider):
    """Scrapy's own commands are bound by the gates as a crawl is (R6)."""
    web = loopback_web(site("blog.example"))
    environment = dict(web.environment)
    words = (*command.split(), *spider.split(), "http://blog.example/")
    asked = run_command(*words, environment=environment)
    assert not any(hit.host == "blog.example" for hit in web.log)
    assert command != "fetch" or "declared" in asked.stderr


def test_a_user_agent_that_no_header_can_hold(loopback_web, crawl):
    settings = {"WALSH_USER_AGENT": "Bötbot/1.0", "WALSH_UA_TOKEN": "tbot"}
    line = refusal(crawl(loopback_web(site("blog.example")), sources=SOURCES, settings=settings))
    assert "WALSH_USER_AGENT is 'Bötbot/1.0'" in line
    assert "ASCII" in line


def test_the_lowest_log_level(loopback_web, crawl):
    web = loopback_web(site("blog.example"))
    result = crawl(web, sources=SOURCES, settings={"LOG_LEVEL": "NOTSET"})
    assert result.exit_code == 0
    assert "Traceback" not in result.stderr
    assert "Crawled (200)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shard": "1/2"}, ["shard", "sources, force, only"]),
        ({"onyl": "blog", "_job": "7"}, ["onyl", "feeds", "did you mean only?", "force"]),
        ({"only": "nosuch"}, ["'nosuch'"]),
        ({"only": "blog.exmaple"}, ["did you mean 'blog.example'?"]),
    ],
)
@pytest.mark.parametrize("process", ["asyncio", "twisted"])
def test_a_wrong_argument_refuses_the_start(
    loopback_web, on_state, tmp_path, arguments, words, process
):
    web = loopback_web(site("blog.example"))
    write_sources(tmp_path / "sources.txt", SOURCES)
    given = (f"-a{name}={value}" for name, value in arguments.items())
    settings = {"FORCE_CRAWLER_PROCESS": process == "twisted"}
    environment = dict(web.environment)
    ended = on_state("crawl", "feeds", *given, settings=settings, environment=environment)
    assert (ended.returncode, web.log) == (2, [])
    _, line = ended.stderr.split("walsh-scrapy: ")
    assert [word for word in words if word not in line] == []
    assert "_job" not in line


def test_a_damaged_state_is_never_overwritten(loopback_web, crawl):
    web = loopback_web(site("blog.example"))
    crawl.folder.mkdir(parents=True)
    state = crawl.folder / "walsh.sqlite3"
    state.write_bytes(b"this was a database once " * 100)
    before = state.read_bytes()
    line = refusal(crawl(web, sources=SOURCES))
    assert "walsh.sqlite3" in line
    assert state.read_bytes() == before


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=needs_json_log)])
@pytest.mark.parametrize(
    ("name", "why"), [("missing/job.log", "No such file or directory"), ("", "Is a directory")]
)
def test_a_log_that_cannot_be_opened_is_one_line(loopback_web, crawl, tmp_path, form, name, why):
    log = tmp_path / name
    settings = {"LOG_FILE": log, "WALSH_LOG_FORMAT": form}
    line = refusal(crawl(loopback_web(site("blog.example")), sources=SOURCES, settings=settings))
    assert f"the log {log} cannot be written: {why}" in line


@needs_json_log
def test_a_log_file_gets_the_line_as_well(loopback_web, crawl, tmp_path):
    log = tmp_path / "job.log"
    web = loopback_web(site("blog.example"))
    settings = {"LOG_FILE": log, "WALSH_LOG_FORMAT": "json"}
    refusal(crawl(web, sources=tmp_path / "missing.toml", settings=settings))
    *_, last = map(json.loads, log.read_text().splitlines())
    assert last["level"] == "CRITICAL"
    assert "missing.toml" in last["message"]
