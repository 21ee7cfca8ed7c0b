"""Every command line in README and docs works as it is written."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from scrapy.settings import Settings
from sqlalchemy import make_url

from tests.helpers import ROOT, execute
from tests.helpers.calls import check_call, check_spider, check_trial
from tests.helpers.pages import (
    COMMANDS_OF,
    DEPLOYING,
    DRILLS,
    FAILED_JOBS,
    LINES_OF_LOGS,
    MAKEFILE,
    PAGES,
    blocks,
    command_lines,
)
from tests.helpers.records import RECORD, commit, entry_of, hold, keep_robots, log_requests
from tests.helpers.sites import BLOCKLIST
from walsh_scrapy.console import main
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.options import Options
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.policy.signing import PrivateKey, directory_body
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import Evidence, hash_of
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.testing import Certificate, Reply, Site
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.tools.call import WrongCall

#: Many of these lines are crawls and servers in processes of their own.
pytestmark = pytest.mark.crawl

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PAGE_OF_STATE = ROOT / "docs" / "state.md"
#: Commands that only read and write the state: they are run.
STATE = ("sources", "hosts", "runs", "export", "backup", "new", "status", "report", "attest", "why")
#: Commands that read files alone, and what else does.
ALONE = ("init", "lint")
ROBOTS = "--robots"
#: Published keys, and the files of these keys in the project.
BOT_KEYS = {name: PrivateKey.generate() for name in ("key.pem", "next.pem")}
AGENT = "https://bot.example/.well-known/http-message-signatures-directory"
#: Lines that install, deploy or look at Scrapyd: tests/contract/test_scrapyd.py does so. The wheel
#: is installed by tests/contract/test_addon_elsewhere.py.
ELSEWHERE = (
    "scrapyd-deploy",
    "/srv/scrapyd/venv/bin/pip",
    "/srv/scrapyd/venv/bin/scrapyd-deploy",
    "python3 -m venv /srv/scrapyd/venv",
    "/srv/scrapyd/venv/bin/scrapyd",
    *FAILED_JOBS,
    *LINES_OF_LOGS,
    *(line for drill in DRILLS for line in drill),
    f"pip install {PROJECT['name']}",
)
#: What is done with a damaged state, line by line: a test of its own.
RESTORING = [
    line.strip()
    for _, text in blocks(PAGE_OF_STATE, "sh")
    if ".recover" in text
    for line in text.strip().splitlines()
]
ENTRIES = {"cron": r"[^#\s]", "ini": r"Exec"}
#: A line of `scrapy` or of our program, and the file that is piped into it.
PROGRAM = re.compile(
    r"(?:cat (\S+) \| )?(?:SSL_CERT_FILE=\S+ )?(?:\S*/)?(?:scrapy|walsh|python -m walsh_scrapy) "
)
OTHER_PROGRAMS = re.compile(
    r"`((?:python3?|pip|make|systemctl|journalctl|psql|pg_dump|sqlite3|grep|curl) [^`]+)`"
)
#: How the pages call the state on PostgreSQL.
SERVER_OF_DOCS = "postgresql://walsh@db.internal/walsh"
#: How they call the one into which a backup is restored as a drill.
DRILL_OF_DOCS = "postgresql://walsh@db.internal/drill"
#: How they call the database that gets a copy of a state.
TARGET_OF_DOCS = "postgresql+psycopg://walsh@db.internal/walsh"
SEEN_AT = "1970-01-01T00:00:01Z"
FEEDS = ("https://blog.example/feed.xml", "https://other.example/feed.xml")
#: What `walsh why` is asked about: a request of 17 November 2026.
SENT = replace(RECORD, requested_at=1_794_909_600.0, host="blog.example", url=FEEDS[0])
SENT = replace(SENT, evidence=Evidence(robots=hash_of(b""), robots_at=1_794_909_590.0))
ADDED = "https://news.example/feed.xml"
PAGE = "https://docs.example/"
LOG_LINE = (
    '192.0.2.1 - - [22/Nov/2026:10:00:{:02} +0000] "GET /feed.xml HTTP/1.1" 200 512 "-" '
    '"Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"\n'
)

DOCS = {
    "/": Reply("<title>x</title>", content_type="text/html"),
    "/llms.txt": Reply("# Docs\n\n- [One](https://docs.example/1.md)\n"),
}
LISTED = {"/.well-known/walsh-research/blocklist.json": json.dumps(BLOCKLIST)}
LINKED = '<link rel="alternate" type="application/rss+xml" href="/feed.xml">'
FED = {"/": Reply(LINKED, content_type="text/html"), "/feed.xml": rss("Feed", ["One"])}
#: What the commands ask for.
WEB = [
    *(Site(urlsplit(url).hostname, "", FED, tls=Certificate.GOOD) for url in (*FEEDS, ADDED)),
    Site("docs.example", "", DOCS, tls=Certificate.GOOD),
    Site("wal.sh", "", LISTED, tls=Certificate.GOOD),
]


def lines_of(*, programs):
    """The command lines that call `scrapy` or `walsh`, or all others; each once."""
    pages = {line: name for name, line in command_lines()}
    for line, name in pages.items():
        if bool(PROGRAM.match(line)) is programs:
            yield pytest.param(line, id=f"{name}: {line[:60]}")


def runs_of_lines():
    """Each line of a command, on SQLite; one line of each on PostgreSQL too."""
    commands = set()
    for line in lines_of(programs=True):
        yield pytest.param(*line.values, "project", id=line.id)
        name = command_of(*line.values)
        if name in STATE and name not in commands:
            commands.add(name)
            yield pytest.param(*line.values, "postgresql_project", id=f"{line.id} (postgresql)")


def command_of(line):
    return PROGRAM.sub("", line).split(" ")[0]


def words_of(line):
    """The command and its arguments, without the program, the pipes and the file around it."""
    return shlex.split(re.split(r" (?:\||>>?) ", PROGRAM.sub("", line, count=1))[0])


def spoken_of():
    """Every `scrapy ...` and `walsh ...` within a sentence."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for line in sorted(set(re.findall(r"(?<!`)`((?:scrapy|walsh) [^`]+)`", text))):
            yield pytest.param(line, id=f"{page.relative_to(ROOT)}: {line[:60]}")


@pytest.mark.parametrize(("line", "database"), list(runs_of_lines()))
def test_a_line_with_a_command_works(line, database, request):
    name = command_of(line)
    if name == "demo":
        return  # tests/testing/test_crawl.py runs it
    if name == "conformance":
        check_trial(shlex.split(line.partition("conformance")[2]))
        return
    check_call(words_of(line))
    if "drill" in line:
        return  # a test below runs these lines one after the other
    project = request.getfixturevalue(database)
    if name in ALONE or ROBOTS in line:
        project.walsh(line)
    elif name in STATE:
        project.run(line)
    else:
        project.ask(line)


@pytest.mark.parametrize("line", list(lines_of(programs=False)))
def test_a_command_line_is_one_that_works(line, request):
    program, *arguments = shlex.split(line)
    if program == "/usr/bin/curl":
        path, _ = sent_by(arguments, request.getfixturevalue("server"))
        assert path in ("/YOUR-UUID", "/YOUR-UUID/fail")
    elif program == "curl":
        check_job(arguments, request.getfixturevalue("server"))
    elif program in ("psql", "pg_dump") and line not in ELSEWHERE:
        request.getfixturevalue("postgresql_project").shell(line)
    elif program in ("sqlite3", "grep", "cat") and line not in (*RESTORING, *ELSEWHERE):
        request.getfixturevalue("project").shell(line)
    elif program == "make":
        assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.MULTILINE)
    elif program == ".venv/bin/pip":
        check_installation(arguments)
    elif line == "python3 -m venv .venv" or line.startswith(".venv/bin/python -m pytest "):
        assert " ".join(arguments).replace(".venv", '".venv"') in MAKEFILE
    elif program == ".venv/bin/python" and arguments[0] == "docs/deployment/handover.py":
        assert (ROOT / arguments[0]).is_file()  # tests/contract/test_handover_crawl.py runs it
    elif program == "python" and arguments[1].startswith("benchmarks."):
        words = shlex.split(line, comments=True)
        ran = execute(sys.executable, *words[1:3], "--help", cwd=ROOT)
        assert ran.returncode == 0
        assert all(word in ran.stdout for word in words[3:] if word.startswith("-"))
    else:
        is_known = line in (*RESTORING, *ELSEWHERE) or program in (*ELSEWHERE, *DEPLOYING)
        assert is_known, "no test knows whether this works"


def check_installation(arguments):
    """Check what pip installs: what the Makefile does, or this package with its extras."""
    extras = re.fullmatch(rf"{PROJECT['name']}\[(.+)\]", arguments[-1])
    if extras:
        assert arguments[:-1] == ["install"]
        assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
    else:
        assert ".venv/bin/pip" in MAKEFILE
        assert " ".join(arguments[1:]) in MAKEFILE


WRONG = [
    "bundle exec rails",
    "scrapy shell x",
    "scrapy crawl nosuch",
    "scrapy crawl feeds -a onyl=x",
]
WRONG += ["walsh nothing", "walsh lint --nosuch robots.txt"]


@pytest.mark.parametrize("text", WRONG)
def test_a_command_that_is_wrong_or_that_no_test_runs_fails(text, request):
    """The tests above are not satisfied by what they do not know."""
    is_ours = PROGRAM.match(text)
    test = test_a_line_with_a_command_works if is_ours else test_a_command_line_is_one_that_works
    with pytest.raises((AssertionError, WrongCall)):
        test(text, *["project"] * bool(is_ours), request)


def test_each_line_of_a_schedule_is_a_command():
    """The pattern finds the command of each entry, so none is left out."""
    for page in PAGES:
        for language, text in blocks(page, "cron", "ini"):
            entries = [line for line in text.splitlines() if re.match(ENTRIES[language], line)]
            assert len(COMMANDS_OF[language].findall(text)) == len(entries), page


@pytest.mark.parametrize("line", list(spoken_of()))
def test_a_command_within_a_sentence_is_one_that_works(line):
    words = shlex.split(re.split(r" \\?\| ", line)[0])[1:]
    if words[0] == "COMMAND" or words[0].startswith("--"):
        return  # of all commands
    if len(words) > 2 or "-" in line or words[0] == "crawl":
        check_call(words)
        return
    with pytest.raises(SystemExit, match="0"):  # it is only named: its arguments are left out
        check_call([*words, "--help"])


def test_other_commands_within_a_sentence_are_known():
    name, extras = PROJECT["name"], ",".join(PROJECT["optional-dependencies"])
    for page in PAGES:
        text = page.read_text("utf-8")
        for line in OTHER_PROGRAMS.findall(text):
            parts = r"benchmarks|tests|walsh_scrapy\.testing"
            module = re.match(rf"python -m ({parts})\.(\w+)", line)
            target = re.match(r"make ([\w-]+)", line)
            if module:
                place = ROOT / module[1].replace(".", "/") / module[2]
                assert place.is_dir() or place.with_suffix(".py").exists(), line
            elif target:
                assert f"\n{target[1]}:" in MAKEFILE, line
            else:
                installs = {f"pip install {name}", f"pip install '{name}[{extras}]'"}
                assert line in installs | {"systemctl --failed"}, f"{page}: {line}"


def test_a_damaged_state_is_restored_as_described(project, tmp_path):
    (tmp_path / ".scrapy" / "walsh.sqlite3").rename(tmp_path / "damaged.sqlite3")
    *saving, checking = RESTORING
    try:
        project.shell(saving[0])
    except AssertionError as error:
        pytest.skip(f"this sqlite3 knows no .recover: {error}")
    project.shell(saving[1])
    assert project.shell(checking).split() == ["ok", str(len(FEEDS))]


def test_a_backup_is_restored_as_a_drill(project, capfd, tmp_path):
    with contextlib.closing(State(project.url)) as state:
        run = state.runs.begin(RunRecord(spider="feeds", started_at=1_794_909_600.0))
        state.runs.end(run, 1_794_909_609.0, "finished", {"fetched": 2})
    (backup,) = (line for _, line in command_lines() if "walsh_scrapy backup -O" in line)
    project.run(backup)
    *copying, status, runs, export = DRILLS[0]
    for line in copying:
        project.shell(line)
    project.run(status)
    project.run(f"{runs} --json | jq -e '.spider == \"feeds\"'")
    project.run(export)
    assert len((tmp_path / "drill" / "entries.jsonl").read_text().splitlines()) == len(FEEDS)


def test_a_dump_is_restored_as_a_drill(postgresql_project, encoded):
    dump, restore, runs = DRILLS[1]
    drill = encoded("UTF8")
    with contextlib.closing(State(postgresql_project.url)) as state:
        state.runs.begin(RunRecord(spider="feeds", started_at=1_794_909_600.0))
    postgresql_project.shell(dump)
    postgresql_project.shell(restore.replace(DRILL_OF_DOCS, drill.replace("+psycopg", "")))
    url = DRILL_OF_DOCS.replace("postgresql:", "postgresql+psycopg:")
    postgresql_project.run(f"{runs.replace(url, drill)} --json | jq -e '.spider == \"feeds\"'")


def test_the_log_of_a_host_shows_two_requests_in_one_second(project, tmp_path):
    (line,) = (text for _, text in blocks(ROOT / "docs" / "rules" / "r4.md", "sh"))
    assert project.shell(line) == ""
    with (tmp_path / "access.log").open("a", encoding="utf-8") as log:
        log.write(LOG_LINE.format(21))
    assert project.shell(line).split() == ["[22/Nov/2026:10:00:21"]


def sent_by(arguments, server):
    """Call curl with these arguments; return the path and the body that a server then received."""
    if not shutil.which("curl"):
        pytest.skip("curl is not on this machine")
    address, received = server
    local = [re.sub(r"^https?://[^/]+", f"http://{address}", word) for word in arguments]
    done = execute("curl", "-sS", *local)
    assert (done.returncode, done.stderr) == (0, "")
    return received.pop()


def check_job(arguments, server):
    """Send what curl sends, and check it as Scrapyd reads it."""
    path, body = sent_by(arguments, server)
    if not path.startswith("/schedule.json"):
        assert path == "/listspiders.json?project=my-feeds"
        return
    fields = parse_qs(body, strict_parsing=True)
    settings = dict(value.split("=", 1) for value in fields.pop("setting", ()))
    Options.from_settings(Settings(settings))
    if "WALSH_STATE_URL" in settings:
        make_url(settings["WALSH_STATE_URL"]).get_dialect()
    assert fields.pop("project") == ["my-feeds"]
    check_spider(fields.pop("spider")[0], **{name: value for name, (value,) in fields.items()})


@pytest.fixture
def server():
    """The address of a server that keeps what it receives, and the list of that."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            received.append((self.path, self.rfile.read(length).decode()))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST = answer  # noqa: N815 - as the base class calls them

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = Thread(target=httpd.serve_forever)
        thread.start()
        yield f"127.0.0.1:{httpd.server_port}", received
        httpd.shutdown()
        thread.join()


def shown_entry(source):
    item = EntryItem(kind="feed", source=source, url=f"{source}/1", first_seen=SEEN_AT)
    return entry_of(source, source, item=json.dumps(item.to_dict()))


class Project:
    """A folder with a scrapy.cfg and a state, in which commands run as in a clone."""

    def __init__(self, folder, url, request):
        self.folder = folder
        self.url = url
        self._request = request
        shutil.copy(ROOT / "scrapy.cfg", folder)
        write_sources(folder / "sources.toml", [*FEEDS, {"url": PAGE, "kind": "llms"}])
        outline = f'<opml><body><outline xmlUrl="{FEEDS[0]}"/></body></opml>'
        (folder / "subscriptions.opml").write_text(outline, "utf-8")
        (folder / "our-ca.pem").touch()
        published = directory_body([BOT_KEYS["key.pem"].public])
        (folder / "directory.json").write_bytes(published)
        log = "".join(map(LOG_LINE.format, (1, 11, 21)))
        (folder / "access.log").write_text(log, "utf-8")
        (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private\n", "utf-8")
        with contextlib.closing(State(url)) as state:
            for source in FEEDS:
                failed = {"visited_at": 1.0, "outcome": "failed", "failures": 3}
                record = SourceRecord(url=source, kind="feed", **failed)
                commit(state, record, [shown_entry(source)])
            keep_robots(state, "https://blog.example:443", RobotsCopy(1_794_909_590.0, 200, b""))
            log_requests(state, SENT)

    def run(self, line):
        """Run a command of `walsh` in this process, and what its output is piped into."""
        if "hosts release" in line:
            with contextlib.closing(State(self.url)) as state:
                hold(state, "blog.example", 3600.0)
        if "--run" in line:
            with contextlib.closing(State(self.url)) as state:
                assert state.runs.begin(RunRecord(spider="feeds", started_at=1.0)) == 1
        if TARGET_OF_DOCS in line:
            line = line.replace(TARGET_OF_DOCS, self._request.getfixturevalue("postgresql_url"))
        command, _, filters = self._here(line).partition(" | ")
        name, *words = words_of(command)
        capfd = self._request.getfixturevalue("capfd")
        with pytest.raises(SystemExit) as ended:
            main([name, "-s", f"WALSH_STATE_URL={self.url}", *words])
        output = capfd.readouterr()
        # The state of these projects has failing sources and no run, which `status` says.
        expected = int(name == "status")
        if name == "backup" and "://" not in line and self.url.startswith("postgresql"):
            assert (ended.value.code, output.err.count("\n")) == (1, 1)
            assert "pg_dump --format=custom" in output.err
            return
        assert ended.value.code == expected, output.err
        if filters:
            self.shell(filters, stdin=output.out)

    def walsh(self, line):
        """Run a line that needs no project, in this process."""
        if "init" in line:
            (self.folder / "empty").mkdir()
            self._request.getfixturevalue("monkeypatch").chdir(self.folder / "empty")
        piped = PROGRAM.match(line)[1]
        text = (self.folder / piped).read_bytes() if piped else b""
        reader = io.BufferedReader(io.BytesIO(text))
        patch = self._request.getfixturevalue("monkeypatch")
        capfd = self._request.getfixturevalue("capfd")
        patch.setattr("sys.stdin", io.TextIOWrapper(reader))
        with pytest.raises(SystemExit) as ended:
            main(words_of(line))
        output = capfd.readouterr()
        assert ended.value.code == 0, output.err
        assert output.out or "--json" in line, "a clean file has no findings"

    def ask(self, line):
        """Run a command that asks servers, in front of a web that has the sources."""
        web = self._request.getfixturevalue("direct_web")(*WEB)
        environment = dict(web.environment)
        if line.startswith("SSL_CERT_FILE"):
            shutil.copy(environment["SSL_CERT_FILE"], self.folder / "trusted.pem")
            environment["SSL_CERT_FILE"] = str(self.folder / "trusted.pem")
        paths = [str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        command, _, filters = self._here(re.split(r" >>? ", line)[0]).partition(" | ")
        arguments = words_of(command)
        if arguments[0] == "keys":
            arguments += self._keys(new="new" in arguments)
        if arguments[0] == "forget":  # its sources must have left the file
            write_sources(self.folder / "sources.toml", [{"url": PAGE, "kind": "llms"}])
        arguments += ["-s", f"WALSH_STATE_URL={self.url}"]
        run_command = self._request.getfixturevalue("run_command")
        done = run_command(*arguments, cwd=self.folder, environment=environment)
        text = done.stdout + done.stderr
        text += "".join(log.read_text("utf-8") for log in self.folder.glob("*.log"))
        assert done.returncode == 0, text
        assert "Traceback" not in text
        if filters:
            self.shell(filters, stdin=done.stdout)
        if arguments[0] == "crawl":
            assert "run finished; sources:\n  fetched           " in text, text
            assert "fetched           0" not in text, text

    def _keys(self, *, new):
        """Keep the keys in their files, unless new ones are made; return the settings for them."""
        if new:
            return []
        for name, key in BOT_KEYS.items():
            (self.folder / name).write_bytes(key.pem)
            (self.folder / name).chmod(0o600)
        values = {"SIGNING_KEY": self.folder / "key.pem", "SIGNATURE_AGENT": AGENT}
        return [f"--set=WALSH_{name}={value}" for name, value in values.items()]

    def shell(self, line, stdin=""):
        program, *arguments = shlex.split(line)
        needed = [file for file in arguments if file.startswith("/etc/")]
        if not shutil.which(program) or not all(Path(file).exists() for file in needed):
            pytest.skip(f"{program} {' '.join(needed)} is not on this machine")
        done = execute("sh", "-c", self._here(line), input=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _here(self, line):
        line = line.replace("/srv/walsh/walsh.sqlite3", f"{self.folder}/.scrapy/walsh.sqlite3")
        for place in ("/srv/walsh/", "/var/log/walsh/"):
            line = line.replace(place, f"{self.folder}/")
        return line.replace(SERVER_OF_DOCS, self.url.replace("+psycopg", ""))


@pytest.fixture
def make_project(tmp_path, monkeypatch, request):
    """Return a function from the URL of a state to a project, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    return lambda url: Project(tmp_path, url, request)


@pytest.fixture
def project(make_project, tmp_path):
    """A project with the default state."""
    return make_project(f"sqlite:///{tmp_path / '.scrapy' / 'walsh.sqlite3'}")


@pytest.fixture
def postgresql_project(make_project, postgresql_url):
    """A project with its state on PostgreSQL."""
    return make_project(postgresql_url)
