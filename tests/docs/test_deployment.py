"""The files of docs/deployment: systemd, logrotate and the image accept them, and the crawl them.

What they run is run here as they confine it: in a read-only file system, without any privilege.
"""

import configparser
import contextlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from sqlalchemy import make_url

from tests.helpers import ROOT, execute
from tests.helpers.calls import check_call
from tests.helpers.pages import DEPLOYING, LINES_OF_LOGS, blocks, command_lines
from tests.helpers.sites import LIST_URL, blocklist, rows_of, site
from walsh_scrapy import __version__
from walsh_scrapy.state import State
from walsh_scrapy.testing.web import Site

FILES = ROOT / "docs" / "deployment"
PAGE = ROOT / "docs" / "deployment.md"
UNITS = sorted(path.name for path in FILES.iterdir() if path.suffix in (".service", ".timer"))
IMAGE = "walsh-scrapy"
CONTAINERFILE = (FILES / "Containerfile").read_text("utf-8")
CLONE = "/srv/walsh-scrapy"
#: How the page makes units of the ones in the folder, and these units.
MAKING = [line for _, line in command_lines() if re.match("(sed|cp) .*docs/deployment/", line)]
MADE_UNITS = [line.rpartition("/")[2] for line in MAKING]
#: The units that stand on the page alone.
PAGE_UNITS = {
    name[1]: text
    for _, text in blocks(PAGE, "ini")
    if (name := re.match(r"# /etc/systemd/system/(\S+)\n", text))
}
#: In tenths; systemd calls up to 1.9 "OK", and a unit without any hardening has 9.6.
EXPOSURE = 15
#: The file system of a unit or an image: only the first argument, a folder, can be written.
CONFINED = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro /
shift
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
#: As MemoryDenyWriteExecute=: PR_SET_MDWE of prctl(2), kept over execve(2).
NO_NEW_CODE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not on this machine")


def output_of(command, **more):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more
    )
    return done.returncode, done.stdout


@pytest.fixture
def systemd(tmp_path):
    """Return a function that calls systemd-analyze on the units, with our programs in them."""
    needs("systemd-analyze")
    scrapy = str(Path(sys.executable).with_name("scrapy"))
    for name in UNITS:
        text = (FILES / name).read_text("utf-8").replace(f"{CLONE}/.venv/bin/scrapy", scrapy)
        (tmp_path / name).write_text(text.replace(CLONE, str(ROOT)), "utf-8")
    environment = os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}

    def analyze(*arguments, **more):
        return output_of(["systemd-analyze", *arguments], cwd=tmp_path, env=environment | more)

    return analyze


def test_systemd_accepts_the_units(systemd, tmp_path):
    instances = [name.replace("@.", "@feeds.") for name in UNITS]
    assert len(instances) == 5
    assert systemd("verify", *instances) == (0, "")
    with (tmp_path / UNITS[-1]).open("a") as file:
        file.write("OnCalender=daily\n")
    assert "OnCalender" in systemd("verify", instances[-1])[1], "it finds mistakes"


def test_the_units_that_are_made_run_the_same_crawl(systemd, tmp_path):
    for line in MAKING:
        here = line.replace("docs/deployment/", "").replace("/etc/systemd/system/", "")
        assert output_of(["sh", "-c", here], cwd=tmp_path) == (0, "")
    instances = [name.replace("@.", "@1.") for name in MADE_UNITS]
    assert instances == ["walsh@llms.timer", "walsh-feeds@1.service", "walsh-feeds@1.timer"]
    assert systemd("verify", *instances) == (0, "")
    assert "\nOnCalendar=daily\n" in (tmp_path / instances[0]).read_text()
    told = systemd("verify", instances[1], SYSTEMD_LOG_LEVEL="debug")[1]
    assert f"/scrapy {shlex.join(of_unit())}\n" in told


def test_systemd_accepts_the_units_of_the_page(systemd, tmp_path):
    for name, text in PAGE_UNITS.items():
        (tmp_path / name).write_text(re.sub(r"=/\S+/bin/\S+", "=/bin/true", text))
    assert list(PAGE_UNITS) == ["scrapyd.service", "walsh-status.service", "walsh-alarm.service"]
    assert systemd("verify", *PAGE_UNITS) == (0, "")


def test_scrapyd_knows_the_options_of_the_page():
    defaults = pkgutil.get_data("scrapyd", "default_scrapyd.conf").decode()
    known, own = configparser.ConfigParser(), configparser.ConfigParser()
    known.read_string(defaults)
    (text,) = (text for _, text in blocks(PAGE, "ini") if "[scrapyd]" in text)
    own.read_string(text)
    assert set(own["scrapyd"]) <= set(known["scrapyd"])


def test_the_crawl_is_exposed_to_little(systemd):
    ask = ("security", "--offline=true", "--no-pager")
    status, told = systemd(*ask, f"--threshold={EXPOSURE}", "walsh@feeds.service")
    assert status == 0, told


def test_logrotate_keeps_what_a_run_or_scrapyd_still_writes(tmp_path):
    needs("logrotate")
    for folder in ("walsh", "scrapyd"):
        (tmp_path / folder).mkdir(mode=0o755)
    logs = {name: tmp_path / name for name in ("walsh/feeds.log", "scrapyd/scrapyd.log")}
    for log in logs.values():
        log.write_text("old\n")
    config = (FILES / "walsh.logrotate").read_text("utf-8")
    config = config.replace("/var/log/walsh", f"{tmp_path}/walsh").replace("/srv", str(tmp_path))
    owner = logs["walsh/feeds.log"]
    config = config.replace("walsh walsh", f"{owner.owner()} {owner.group()}")
    (tmp_path / "conf").write_text(config)
    (tmp_path / "conf").chmod(0o644)
    with logs["walsh/feeds.log"].open("a") as run, logs["scrapyd/scrapyd.log"].open("a") as scrapyd:
        command = ["logrotate", "--force", "--state", tmp_path / "status", tmp_path / "conf"]
        assert output_of(command) == (0, "")
        run.write("the end of a run\n")
        scrapyd.write("new\n")
    (rotated,) = (tmp_path / "walsh").glob("feeds.log-*")
    assert rotated.read_text() == "old\nthe end of a run\n", "not compressed yet"
    assert logs["walsh/feeds.log"].read_text() == ""
    assert logs["scrapyd/scrapyd.log"].read_text() == "new\n"
    (rotated,) = (tmp_path / "scrapyd").glob("scrapyd.log-*")
    assert (rotated.read_text(), len(rotated.suffix)) == ("old\n", len(".log-20261122"))


def test_jobs_that_failed_lately_are_named(tmp_path):
    now = datetime.now()  # noqa: DTZ005 - as Scrapyd's log, in the time zone of the machine

    def died(job, hours):
        at = (now - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S+0000")
        return f"{at} [Launcher,1/stderr] Process died: exitstatus=1 job='{job}'\n"

    log, older = tmp_path / "scrapyd.log", tmp_path / "scrapyd.log-20261122"

    def told():
        return output_of(["sh", FILES / "scrapyd-failed.sh", log])

    assert told()[0] == 2, "there is no log"
    log.write_text("")
    assert told() == (0, "")
    log.write_text(died("old", 2) + died("new", 0.5).replace("died", "finished"))
    assert told() == (0, "")
    older.write_text(died("older", 2) + died("rotated", 0.5))
    assert told() == (1, died("rotated", 0.5))
    log.write_text(died("new", 0.1))
    assert told() == (1, died("new", 0.1) + died("rotated", 0.5))


def test_what_the_image_copies_is_there():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert sources
    for source in sources:
        assert source.startswith("dist/") or (ROOT / source).exists()


#: Programs whose lines have tests of their own.
ELSEWHERE = {"useradd", "sed", "cp", "kubectl", "createuser", "createdb"}
LINES = [line for _, line in command_lines() if line.split()[0] in set(DEPLOYING) - ELSEWHERE]


@pytest.mark.parametrize("line", [pytest.param(line, id=line[:60]) for line in LINES])
def test_a_line_of_the_docs_fits_the_files(line):
    program, *arguments = shlex.split(line)
    if program == "install":
        sources = [word for word in arguments if word.startswith("docs/")]
        assert all((ROOT / source).is_file() for source in sources)
    elif program == "systemctl":
        units = [word for word in arguments if word.endswith((".service", ".timer"))]
        names = {re.sub(r"@.+\.", "@.", unit) for unit in units}
        assert names <= {*UNITS, *MADE_UNITS, *PAGE_UNITS}
    elif program == "journalctl":
        needs("jq")
        said = "Starting walsh@feeds.service ...\n"
        said += '{"time": "T", "level": "ERROR", "message": "m"}\n{"level": "INFO"}\n'
        told = output_of(["sh", "-c", line.partition(" | ")[2]], input=said)
        assert told == (0, "T m\n")
    elif arguments[0] != "build":
        command = arguments[arguments.index(IMAGE) + 1 :] or of_image()
        is_walsh = "--entrypoint walsh" in line
        assert is_walsh is (command[0] != "crawl")
        check_call(command)


def test_the_role_and_the_database_of_the_docs_take_a_state(postgresql_url):
    needs("createuser", "createdb")
    url = make_url(postgresql_url)
    name = f"{url.database}_docs"
    server = {"PGHOST": url.host, "PGPORT": str(url.port or 5432), "PGUSER": url.username}
    lines = [line for _, line in command_lines() if line.startswith(("createuser ", "createdb "))]

    def call(line):
        command = shlex.split(line.replace("walsh", name))
        assert output_of(command, env=os.environ | server) == (0, "")

    assert len(lines) == 2
    try:
        for line in lines:
            call(line)
        State(url.set(username=name, database=name).render_as_string()).close()
    finally:
        call("dropdb --if-exists --force walsh")
        call("dropuser walsh")


def test_the_user_of_the_docs_is_the_one_of_the_units(tmp_path):
    needs("useradd")
    for name in ("passwd", "group", "shadow", "gshadow"):
        (tmp_path / "etc" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "etc" / name).touch()
    (line,) = (line for _, line in command_lines() if line.startswith("useradd "))
    program, *arguments = shlex.split(line)
    status, told = output_of([program, "--prefix", str(tmp_path), *arguments])
    if status == 1 and os.getuid():
        pytest.skip("only root may add a user")
    assert (status, told) == (0, "")
    (user,) = (tmp_path / "etc" / "passwd").read_text().splitlines()
    name, _, _, _, _, home, shell = user.split(":")
    unit = (FILES / "walsh@.service").read_text("utf-8")
    assert f"\nUser={name}\nWorkingDirectory={home}\n" in unit
    assert shell.endswith("/nologin")
    made = [line.split() for _, line in command_lines() if line.startswith(f"install -d -o {name}")]
    folders = {word for words in made for word in words if word.startswith("/")}
    assert folders >= {home, *re.findall(r"^ReadWritePaths=(\S+)", unit, re.MULTILINE)}


def of_unit():
    unit = (FILES / "walsh@.service").read_text("utf-8")
    (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    _, *arguments = shlex.split(line)
    return [argument.replace("%i", "feeds") for argument in arguments]


def of_image():
    return json.loads(re.search(r"^CMD (.+)$", CONTAINERFILE, re.MULTILINE)[1])


def test_unit_and_image_run_the_same_crawl():
    assert of_unit() == of_image()
    check_call(of_unit())


def test_a_crawl_needs_to_write_its_state_only(loopback_web, tmp_path):
    needs("unshare", "setpriv")
    folder, project = tmp_path / "state", tmp_path / "project"
    for directory in (folder, project):
        directory.mkdir()
    (project / "scrapy.cfg").write_text((ROOT / "scrapy.cfg").read_text("utf-8"), "utf-8")
    (project / ".scrapy").symlink_to(folder)
    (project / "sources.toml").write_text('[[source]]\nurl = "http://blog.example/feed"\n', "utf-8")
    web = loopback_web(
        site("blog.example"), Site("operator.example", "", {"/blocklist.json": blocklist()})
    )
    confined = ["unshare", "--mount", "--map-root-user", "sh", "-c", CONFINED, "sh", str(folder)]
    if output_of([*confined, "true"], cwd=project)[0]:
        pytest.skip("this machine lets nobody confine a process")
    told = output_of([*confined, "touch", str(project / "x")], cwd=project)[1]
    assert "Read-only file system" in told
    own = ["-s", f"WALSH_BLOCKLIST_URL={LIST_URL}", "-s", "WALSH_BLOCKLIST_SCHEMA_URL="]
    crawl = [sys.executable, "-m", "scrapy", *of_unit(), *own, "-o", str(folder / "new.jsonl")]
    status, told = output_of(
        [*confined, sys.executable, "-c", NO_NEW_CODE, *crawl],
        cwd=project,
        env=os.environ | web.environment | {"PYTHONPATH": str(ROOT)},
    )
    assert status == 0, told
    lines = [json.loads(line) for line in told.splitlines()]
    assert any(line["message"].startswith("run finished; sources:") for line in lines)
    assert {line["level"] for line in lines} == {"INFO", "WARNING"}, told
    assert rows_of(folder, "SELECT outcome FROM sources") == [("fetched",)]
    assert len((folder / "new.jsonl").read_text().splitlines()) == 2


# The manifest for Kubernetes: a schema accepts it, and its command crawls until SIGTERM.

MANIFEST = yaml.safe_load((FILES / "kubernetes.yaml").read_text("utf-8"))
SCHEMA = json.loads(Path(__file__).with_name("kubernetes.schema.json").read_text("utf-8"))
POD = MANIFEST["spec"]["template"]["spec"]
(CRAWL,) = POD["containers"]
#: Stands for a program in a container: call LAST goes on until SIGTERM, and then ends slowly.
STAND_IN = f"""#!{sys.executable} -SI
import os, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
container, call = os.getppid(), " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
with open("calls", "a+") as calls:
    print(call, file=calls, flush=True)
    calls.seek(0)
    number = len(calls.readlines())
print(call, flush=True)
if number == int(os.environ["LAST"]):
    signal.sigwait([signal.SIGTERM])
    subprocess.run([sys.executable, "-SIc", ""])
    print("ends in order" if os.getppid() == container else "is left alone")
"""


def test_the_schema_accepts_the_manifest():
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(MANIFEST)


def test_the_pod_runs_the_crawl_of_the_image():
    assert CRAWL["image"] == f"{IMAGE}:{__version__}"
    assert set(CRAWL["args"]) > set(of_image())
    url = "WALSH_STATE_URL=$(WALSH_STATE_URL)"  # Kubernetes knows the variable by the Secret
    assert url in CRAWL["args"]
    check_call([word.replace(url, "WALSH_STATE_URL=sqlite:////x") for word in CRAWL["args"]])


@pytest.fixture
def container(tmp_path):
    """Return a function that starts the command of the pod with other programs in its PATH."""
    started = []

    def start(last=0, **programs):
        for name, text in programs.items():
            (tmp_path / name).write_text(text, "utf-8")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen(
            [*CRAWL["command"], "crawl", "feeds"],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "LAST": str(last)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("last", [3, 4], ids=["in a crawl", "in a pause"])
def test_a_container_crawls_until_sigterm_and_ends_in_order(container, last):
    process = container(last, scrapy=STAND_IN, sleep=STAND_IN)
    expected = ["scrapy crawl feeds\n", "sleep 600\n"] * 2
    assert [process.stdout.readline() for _ in range(last)] == expected[:last]
    process.terminate()
    assert process.wait(timeout=60) == 0
    assert process.stdout.readlines() == ["ends in order\n"]


def test_a_crawl_that_fails_ends_the_container(container):
    assert container(scrapy="#!/bin/sh\nexit 3\n").wait(timeout=60) == 3


# docs/owners.md: what its lines of awk show of a server's log.

AGENT = "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"
#: Two requests 4 s apart around midnight of a new year, and one a minute later.
MIDNIGHT = datetime.fromisoformat("2026-12-31T23:59:58+01:00")
#: Seconds, address, path, status and User-Agent of each request.
SENT = [
    (0, "192.0.2.1", "/robots.txt", 200, AGENT),
    (1, "192.0.2.9", "/", 200, "curl/8"),
    (4, "192.0.2.1", "/feed.xml", 200, AGENT),
    (64, "192.0.2.1", "/private/it's", 404, AGENT),
    (124, "192.0.2.1", "/feed.xml", 304, AGENT),
]


@pytest.fixture
def shown(tmp_path):
    """Return a function from lines of the page to what the last of them prints, as words."""
    log, common = "", ""
    for seconds, address, path, status, agent in SENT:
        at = (MIDNIGHT + timedelta(seconds=seconds)).strftime("%d/%b/%Y:%H:%M:%S %z")
        line = f'{address} - - [{at}] "GET {path} HTTP/1.1" {status} 512'
        log, common = f'{log}{line} "-" "{agent}"\n', f"{common}{line}\n"
    (tmp_path / "access.log").write_text(log, "utf-8")
    (tmp_path / "common.log").write_text(common, "utf-8")
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /private\n", "utf-8")

    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def show(*lines):
        for line in lines:
            called = line.replace("walsh ", f"{sys.executable} -m walsh_scrapy ")
            done = execute("sh", "-c", called, cwd=tmp_path, env=environment)
            assert (done.returncode, done.stderr) == (0, "")
        return [text.split() for text in done.stdout.splitlines()]

    return show


def test_awk_shows_agent_gap_and_robots_txt(shown):
    agents, gaps, robots, denied = LINES_OF_LOGS
    assert shown(agents) == [["4", *AGENT.split()], ["1", "curl/8"]]
    assert shown(gaps) == [["2", "60"]]
    assert shown(robots) == [["[31/Dec/2026:23:59:58", "200"]]
    said = ["https://blog.example/private/it's:", "denied", "for", "Walsh-Research"]
    assert shown(denied) == [said]


def test_a_common_log_is_read_by_address(shown):
    agents, gaps, robots, _ = (
        line.replace("access.log", "common.log").replace("/Walsh-Research/", '$1 == "192.0.2.1"')
        for line in LINES_OF_LOGS
    )
    by_address = agents.replace("$6", "$1").replace("-F'\"'", "")
    assert shown(by_address) == [["4", "192.0.2.1"], ["1", "192.0.2.9"]]
    assert shown(gaps) == [["2", "60"]]
    assert shown(robots) == [["[31/Dec/2026:23:59:58", "200"]]
