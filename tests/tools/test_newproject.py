"""`walsh init`: the project that it writes, and that it is the one of this repository."""

import runpy

import pytest

from tests.helpers import ROOT
from tests.helpers.sites import AGENT, judge, refusal, site
from walsh_scrapy import settings as ours
from walsh_scrapy.console.program import main
from walsh_scrapy.testing.crawl import write_sources

SOURCES = ["http://blog.example/feed"]
#: What a new project has otherwise than this one.
OWN = {"BOT_NAME", "WALSH_USER_AGENT", "WALSH_UA_TOKEN", "WALSH_BLOCKLIST_URL"}
IDENTITY = {"WALSH_USER_AGENT": AGENT, "WALSH_UA_TOKEN": "Example-Bot"}


@pytest.fixture
def walsh_init(capsys, monkeypatch, tmp_path):
    """Run `walsh init` in an empty folder; return its exit status, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(folder):
        with pytest.raises(SystemExit) as ended:
            main(["init", str(folder)])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture
def new(walsh_init, tmp_path):
    assert walsh_init("new")[0] == 0
    return tmp_path / "new"


def files_of(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_it_writes_the_project_and_says_the_next_two_commands(walsh_init, tmp_path):
    status, out, err = walsh_init("my feeds")
    assert (status, err) == (0, "")
    first, *commands = out.splitlines()
    assert first.endswith("Set WALSH_USER_AGENT and WALSH_UA_TOKEN in my feeds/settings.py. Then:")
    assert commands == [
        "  cd 'my feeds' && scrapy crawl feeds",
        "  scrapy export -o entries.csv",
    ]
    assert set(files_of(tmp_path / "my feeds")) == {
        "scrapy.cfg", "settings.py", "sources.toml",
        "spiders/__init__.py", "spiders/feeds.py", "spiders/llms.py",
    }  # fmt: skip


def test_it_has_the_spiders_sources_and_settings_of_this_repository(new):
    files = files_of(new)
    for path in (ROOT / "spiders").glob("*.py"):
        assert files[f"spiders/{path.name}"].read_text() == path.read_text()
    assert (ROOT / "sources.toml").read_text().startswith(files["sources.toml"].read_text())
    theirs = runpy.run_path(str(files["settings.py"]))
    different = {
        name
        for name in {*theirs, *vars(ours)}
        if name[0].isupper() and theirs.get(name) != getattr(ours, name, None)
    }
    assert different == OWN
    assert theirs["BOT_NAME"] == "new"


@pytest.mark.parametrize("name", ["settings.py", "spiders/feeds.py", "scrapy.cfg"])
def test_it_overwrites_nothing_and_then_writes_nothing(walsh_init, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to("nowhere")
    status, out, err = walsh_init(".")
    assert (status, out) == (1, "")
    line = f"walsh-scrapy: {name} exists already, so nothing was written; name another folder\n"
    assert err == line
    assert files_of(tmp_path) == {}


def test_a_folder_that_cannot_be_written_is_one_line(walsh_init, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = walsh_init("file")
    assert status == 2
    assert err.startswith("walsh-scrapy: file/scrapy.cfg cannot be written: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({}, ['WALSH_USER_AGENT = "new/1.0 (+', 'WALSH_UA_TOKEN = "new"']),
        ({"WALSH_UA_TOKEN": "Example-Bot"}, ['"Example-Bot/1.0 (+', '"Example-Bot"']),
        ({"WALSH_USER_AGENT": AGENT}, [f'"{AGENT}"', 'WALSH_UA_TOKEN = "Example-Bot"']),
    ],
)
def test_without_an_identity_it_refuses_to_crawl(crawl, loopback_web, new, settings, lines):
    web = loopback_web(site("blog.example"))
    result = crawl(web, project=new, sources=SOURCES, settings=settings)
    assert result.exit_code == 1
    line = refusal(result)
    assert "the project has no identity, and no request is sent without one; set" in line
    assert [each for each in lines if each not in line] == []


@pytest.mark.parametrize("spider", ["feeds", "llms"])
def test_it_crawls_under_its_own_identity(crawl, direct_web, new, spider):
    links = "# Blog\n\n- [One](http://blog.example/1)\n- [Two](http://blog.example/2)\n"
    web = direct_web(site("blog.example", **{"llms.txt": links}))
    settings = new / "settings.py"
    filled = settings.read_text()
    for name, value in IDENTITY.items():
        assert filled.count(f'\n{name} = ""\n') == 1
        filled = filled.replace(f'\n{name} = ""\n', f'\n{name} = "{value}"\n')
    settings.write_text(filled)
    url = "http://blog.example/feed" if spider == "feeds" else "http://blog.example/llms.txt"
    write_sources(new / "sources.toml", [{"url": url, "kind": spider.replace("feeds", "feed")}])
    given = {"WALSH_SOURCES": new / "sources.toml"}
    result = crawl(web, spider, project=new, settings=given)
    assert result.exit_code == 0, result.stderr
    assert sorted(item["title"] for item in result.items) == ["One", "Two"]
    judge(web, user_agent=AGENT)


def test_scrapy_finds_each_spider_once(new, run_scrapy):
    listed = run_scrapy("list", cwd=new, environment={"PYTHONPATH": str(ROOT)})
    assert listed.stdout.split() == ["feeds", "llms"], listed.stderr
    assert run_scrapy("list").stdout.split() == ["feeds", "llms"]
