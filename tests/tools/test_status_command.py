"""`scrapy status`: the exit statuses of monitoring plugins, and nothing on a failure but a line."""

import contextlib
import json
import logging

import pytest
from scrapy.cmdline import execute
from scrapy.utils.project import get_project_settings

from walsh_scrapy.state import State
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.tools.status import findings
from walsh_scrapy.tools.status.findings import Limits


@pytest.fixture
def status(tmp_path, monkeypatch, pytestconfig, capsys):
    """Run the command in a folder of its own; return its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "walsh_scrapy.settings")
    monkeypatch.syspath_prepend(pytestconfig.rootpath)
    monkeypatch.setattr(logging.getLogger("walsh_scrapy"), "level", logging.NOTSET)
    monkeypatch.setattr(findings, "DISK_MIB", Limits(1, 0))  # whatever this machine has
    url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"

    def run(*arguments):
        settings = get_project_settings()
        settings.set("WALSH_STATE_URL", url)
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", "status", *arguments], settings)
        return ended.value.code, capsys.readouterr()

    run.url = url
    return run


@pytest.fixture
def well(status, tmp_path):
    """The same, with a state in which all is well."""
    (tmp_path / "sources.toml").write_text('[[source]]\nurl = "http://blog.example/feed"\n')
    with contextlib.closing(State(status.url)) as state:
        now = state.now()
        number = state.runs.begin(RunRecord(spider="feeds", begun=now - 60))
        state.runs.end(number, now - 30, "finished", {"fetched": 1})
    keep_empty_blocklist(status.url)
    return status


def test_all_is_well_for_an_operator_a_program_and_prometheus(well, tmp_path):
    file = tmp_path / "walsh.prom"
    code, said = well("--prometheus", str(file))
    first, *lines = said.out.splitlines()
    assert (code, first, said.err) == (0, "OK: all is well", "")
    assert [line.split()[:2] for line in lines][:2] == [["OK", "run"], ["OK", "killed"]]
    assert "walsh_status 0.0\n" in file.read_text()
    code, said = well("--json")
    assert (code, json.loads(said.out)["status"]) == (0, "OK")
    assert well("--quiet") == (0, ("", ""))


def test_quiet_says_nothing_of_a_file_that_has_warnings_while_all_is_well(well, tmp_path, caplog):
    outline = '<outline text="Blog" xmlUrl="http://blog.example/feed"/>'
    file = tmp_path / "sources.opml"
    file.write_text(f"<opml><body>{outline}<outline xmlUrl='mailto:a'/>{outline}</body></opml>")
    well("--sources", str(file))
    assert len(caplog.messages) == 2
    caplog.clear()
    assert well("--quiet", "--sources", str(file)) == (0, ("", ""))
    assert caplog.messages == []


def test_what_is_wrong_comes_first_and_sets_the_exit_status(well):
    assert well("--run-hours", "0.001,9")[0] == 1
    code, said = well("-s", "WALSH_BLOCKLIST_FILE=nowhere.txt")
    assert (code, said.out.splitlines()[0]) == (2, "CRITICAL: blocklist")
    assert "WALSH_BLOCKLIST_FILE: nowhere.txt: No such file" in said.out
    code, said = well("--quiet", "--sources", "elsewhere.toml")
    assert code == 2
    assert said.out.splitlines()[0] == "CRITICAL: sources"
    assert "elsewhere.toml: there is no such file" in said.out.splitlines()[1]


def test_a_state_that_cannot_be_read_is_unknown_for_everybody(status, tmp_path):
    file = tmp_path / "walsh.prom"
    code, said = status("--prometheus", str(file))
    assert (code, said.out.splitlines()[0]) == (3, "UNKNOWN: state")
    assert "walsh_status 3.0\n" in file.read_text()
    (tmp_path / "walsh.sqlite3").write_bytes(b"this was a database once " * 100)
    code, said = status("--json")
    (found,) = json.loads(said.out)["findings"]
    assert (code, found["status"], found["check"]) == (3, "UNKNOWN", "state")
    assert "walsh.sqlite3" in found["what"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["now"], "status does not take now"),
        (["--nope"], "--nope"),
        (["--run-hours"], "--run-hours: expected one argument"),
        (["-a", "sources=x.toml"], "the sources file is --sources FILE here"),
        (["--run-hours", "3"], "--run-hours: 3 is not two numbers"),
        (["--run-hours", "6,3"], "the second not smaller"),
        (["--failing", "nan,1"], "--failing: nan,1"),
        (["--prometheus", "nowhere/walsh.prom"], "--prometheus nowhere/walsh.prom: No such file"),
    ],
)
def test_a_wrong_call_is_unknown_and_one_line(status, arguments, words):
    code, said = status(*arguments)
    assert (code, said.err.count("\n")) == (3, 1)
    assert words in said.err


def test_a_bad_setting_is_unknown(status):
    code, said = status("-s", "WALSH_MIN_INTERVAL=0")
    assert (code, said.out.splitlines()[0]) == (3, "UNKNOWN: settings")
    assert "WALSH_MIN_INTERVAL" in said.out
