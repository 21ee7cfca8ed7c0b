"""Every command line in README and docs works as it is written."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from scrapy.cmdline import ScrapyArgumentParser, execute
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings

from tests.test_docs import MAKEFILE, PAGES, ROOT, blocks, page_of
from walsh_scrapy.items import EntryItem
from walsh_scrapy.options import Options
from walsh_scrapy.sources import parse_shard
from walsh_scrapy.state import State
from walsh_scrapy.state.entries import EntryRecord
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.testing.sources import write_sources

PAGE_OF_STATE = ROOT / "docs" / "state.md"
#: Commands that ask servers: their options are checked here, what they do by crawls elsewhere.
ASKING = ("crawl", "demo", "discover", "mayfetch")
#: Commands that only read and write the state: they are run.
STATE = ("sources", "export")
#: Lines that install or deploy: tests/contract/test_scrapyd.py does so.
ELSEWHERE = ("scrapyd-deploy", "/srv/scrapyd/venv/bin/pip", "python3 -m venv /srv/scrapyd/venv")
#: What is done with a damaged state, line by line: a test of its own.
RESTORING = next(text for _, text in blocks(PAGE_OF_STATE, "sh") if ".recover" in text)
NOT_BUILT = "## Decided, not built yet"
ARGUMENTS = set(re.findall(r"^\| `(\w+)=", page_of("settings.md"), re.MULTILINE))
SEEN_AT = "1970-01-01T00:00:01Z"
FEEDS = ("https://blog.example/feed.xml", "https://other.example/feed.xml")
LOG_LINE = (
    '192.0.2.1 - - [22/Nov/2026:10:00:{:02} +0000] "GET /feed.xml HTTP/1.1" 200 512 "-" '
    '"Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"\n'
)


def command_lines():
    """Every command line of a page, whichever block it stands in."""
    for page in PAGES:
        name = page.relative_to(ROOT)
        for language, text in blocks(page, "sh", "cron", "ini"):
            joined = text.replace("\\\n", " ")
            if language != "sh":
                joined = "\n".join(re.findall(r"(?:&& |^ExecStart=)(.+)$", joined, re.MULTILINE))
            for line in filter(None, map(str.strip, joined.splitlines())):
                yield pytest.param(line, id=f"{name}: {line[:60]}")


def spoken_of():
    """Every `scrapy ...` within a sentence."""
    for page in PAGES:
        text = page.read_text("utf-8").partition(NOT_BUILT)[0]
        for line in sorted(set(re.findall(r"(?<!`)`(scrapy [^`]+)`", text))):
            yield pytest.param(line, id=f"{page.relative_to(ROOT)}: {line[:60]}")


@pytest.mark.parametrize("line", list(command_lines()))
def test_a_command_line_is_one_that_works(line, request):
    line = re.sub(r"^SSL_CERT_FILE=\S+ ", "", line)
    program, *arguments = shlex.split(line)
    if Path(program).name == "scrapy" and arguments[0] in STATE:
        request.getfixturevalue("project").run(line)
    elif Path(program).name == "scrapy":
        check_call(arguments)
    elif program == "curl":
        check_job(arguments)
    elif program in ("sqlite3", "grep", "cat") and line not in RESTORING:
        request.getfixturevalue("project").shell(line)
    elif program == "make":
        assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.MULTILINE)
    elif program == ".venv/bin/pip":
        assert program in MAKEFILE
        assert " ".join(arguments[1:]) in MAKEFILE
    elif line in ("python3 -m venv .venv", ".venv/bin/python -m pytest"):
        assert " ".join(arguments).replace(".venv", '".venv"') in MAKEFILE
    else:
        is_known = line in RESTORING or line in ELSEWHERE or program in ELSEWHERE
        assert is_known, "no test knows whether this works"


@pytest.mark.parametrize("line", list(spoken_of()))
def test_a_command_within_a_sentence_is_one_that_works(line):
    check_call(shlex.split(line)[1:])


def test_a_damaged_state_is_restored_as_described(project, tmp_path):
    (tmp_path / ".scrapy" / "walsh.sqlite3").rename(tmp_path / "damaged.sqlite3")
    *saving, checking = (line.strip() for line in RESTORING.strip().splitlines())
    try:
        project.shell(saving[0])
    except AssertionError as error:
        pytest.skip(f"this sqlite3 knows no .recover: {error}")
    project.shell(saving[1])
    assert project.shell(checking).split() == ["ok", str(len(FEEDS))]


def test_the_log_of_a_host_shows_two_requests_in_one_second(project, tmp_path):
    (line,) = (text for _, text in blocks(ROOT / "docs" / "rules" / "r4.md", "sh"))
    assert project.shell(line) == ""
    with (tmp_path / "access.log").open("a", encoding="utf-8") as log:
        log.write(LOG_LINE.format(21))
    assert project.shell(line).split() == ["[22/Nov/2026:10:00:21"]


def check_call(arguments):
    """Check a command's options as Scrapy would, and the values that are given with them."""
    name, *given = arguments
    assert name in (*STATE, *ASKING)
    settings = get_project_settings()
    command = load_object(f"walsh_scrapy.commands.{name}.Command")()
    command.settings = settings
    parser = ScrapyArgumentParser(conflict_handler="resolve")
    command.add_options(parser)
    options, rest = parser.parse_known_args(given)
    assert [word for word in rest if word.startswith("-")] == []
    command.process_options(rest, options)
    Options.from_settings(settings)
    if name == "crawl" and rest != ["SPIDER"]:
        check_spider(rest[0] if rest else "feeds", **getattr(options, "spargs", {}))


def check_spider(name, **arguments):
    assert (ROOT / "spiders" / f"{name}.py").exists()
    assert set(arguments) <= ARGUMENTS
    if "shard" in arguments:
        parse_shard(arguments["shard"])


def check_job(arguments):
    """Check what is posted to Scrapyd: a spider, arguments that it takes, settings that exist."""
    url, *rest = arguments
    fields = [field.partition("=")[::2] for flag, field in zip(rest[::2], rest[1::2], strict=True)]
    given = dict(fields)
    if url.endswith("/schedule.json"):
        settings = [value.partition("=")[::2] for name, value in fields if name == "setting"]
        Options.from_settings(Settings(dict(settings)))
        named = {name: value for name, value in fields if name not in ("project", "setting")}
        assert given["project"] == "walsh_scrapy"
        check_spider(named.pop("spider"), **named)
    else:
        assert re.fullmatch(r"http://localhost:6800/listspiders\.json\?project=walsh_scrapy", url)


def entry_of(source):
    item = EntryItem(kind="feed", source=source, url=f"{source}/1", first_seen=SEEN_AT)
    return EntryRecord(
        key=source,
        full_key=source,
        page_key=source,
        source=source,
        kind="feed",
        first_seen=1.0,
        item=json.dumps(item.exported()),
    )


@pytest.fixture
def project(tmp_path, monkeypatch, capfd):
    """A folder with a scrapy.cfg and a state, in which commands run as in a clone."""
    shutil.copy(ROOT / "scrapy.cfg", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    write_sources(tmp_path / "sources.toml", FEEDS)
    (tmp_path / "our-ca.pem").touch()
    (tmp_path / "access.log").write_text("".join(map(LOG_LINE.format, (1, 11, 21))), "utf-8")
    file = tmp_path / ".scrapy" / "walsh.sqlite3"
    url = f"sqlite:///{file}"
    with contextlib.closing(State(url)) as state:
        for source in FEEDS:
            record = SourceRecord(
                url=source, kind="feed", fetched_at=1.0, outcome="failed", failures=3
            )
            state.sources.commit(record, [entry_of(source)])

    def run(line):
        """Run a `scrapy` command in this process, and what its output is piped into."""
        command, _, filters = line.replace("/srv/walsh/", f"{tmp_path}/").partition(" | ")
        settings = get_project_settings()
        settings.set("WALSH_STATE_URL", url)
        with pytest.raises(SystemExit) as ended:
            execute(shlex.split(command), settings)
        said = capfd.readouterr()
        assert not ended.value.code, said.err
        if filters:
            shell(filters, given=said.out)

    def shell(line, given=""):
        program, *arguments = shlex.split(line)
        needed = [each for each in arguments if each.startswith("/etc/")]
        if not shutil.which(program) or not all(Path(each).exists() for each in needed):
            pytest.skip(f"{program} {' '.join(needed)} is not on this machine")
        done = subprocess.run(
            ["sh", "-c", line], input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return SimpleNamespace(run=run, shell=shell)
