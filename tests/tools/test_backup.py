"""`scrapy backup`: one file has what another machine needs; only a sound one is restored."""

import contextlib
import io
import json
import sqlite3
import stat
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from scrapy.settings import Settings

from tests.helpers.records import make_state
from tests.helpers.sites import feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.testing.project import write_sources
from walsh_scrapy.tools.backup.transfer import dump_command, restore, write_backup
from walsh_scrapy.tools.exits import CommandError

PAGE = "http://a.example/feed"


def options_in(folder, **settings):
    given = {
        "WALSH_STATE_URL": f"sqlite:///{folder}/state/walsh.sqlite3",
        "WALSH_SOURCES": str(folder / "sources.toml"),
    }
    return Options.from_settings(Settings(given | settings))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A project with a state, a sources file, a second one that a run read, and a blocklist."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "more").mkdir(parents=True)
    write_sources(folder / "sources.toml", [PAGE])
    write_sources(folder / "more" / "sources.toml", ["http://b.example/feed"])
    (folder / "blocked").write_text("out.example\n")
    options = options_in(folder, WALSH_BLOCKLIST_FILE=str(folder / "blocked"))
    make_state(options.state_url)
    with contextlib.closing(State(options.state_url)) as state:
        for place in (folder, folder / "more"):
            state.sync(place / "sources.toml", 100.0)
    return options


@pytest.fixture(scope="module")
def body(here):
    """A backup of it."""
    file = io.BytesIO()
    with contextlib.closing(State(here.state_url)) as state:
        write_backup(file, state, here)
    return file.getvalue()


@pytest.fixture
def backup(body, tmp_path):
    file = tmp_path / "backup.zip"
    file.write_bytes(body)
    return file


@pytest.fixture
def there(tmp_path):
    """A project in which nothing is yet, on an address with signs that URLs have to escape."""
    folder = tmp_path / "the%re ?"
    folder.mkdir()
    url = "sqlite:///" + str(folder).replace("%", "%25").replace("?", "%3F")
    return options_in(folder, WALSH_STATE_URL=f"{url}/new/walsh.sqlite3", WALSH_MIN_INTERVAL=2)


def files_in(options):
    folder = Path(options.sources).parent
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def refused(file, options):
    """Why a backup is refused; nothing of it is there then."""
    before = files_in(options)
    with pytest.raises((CommandError, StateError)) as error:
        restore(str(file), options)
    assert files_in(options) == before
    (line,) = str(error.value).splitlines()
    return line


def test_what_is_restored_is_what_was_there(here, backup, there):
    told = "\n".join(restore(str(backup), there))
    restored = ["2-sources.toml", "blocked.txt", "new/walsh.sqlite3", "sources.toml"]
    assert files_in(there) == restored
    was, folder = Path(here.sources).parent, Path(there.sources).parent
    for name, old in (("2-sources.toml", "more/sources.toml"), ("blocked.txt", "blocked")):
        assert (folder / name).read_bytes() == (was / old).read_bytes()
        assert f"{folder / name} (was {was / old})" in told
    differing = {line.split()[0] for line in told.splitlines() if " here and was " in line}
    assert differing == {"WALSH_SOURCES", "WALSH_MIN_INTERVAL", "WALSH_BLOCKLIST_FILE"}
    assert "WALSH_MIN_INTERVAL is 2.0 here and was 1.0 there" in told
    assert f"WALSH_BLOCKLIST_FILE is '' here and was '{was / 'blocked'}' there" in told
    with contextlib.closing(State(there.state_url)) as state:
        assert state.sources.find(PAGE) is not None
        assert "was restored from a backup of" in state.backups.notice()


def test_no_secret_is_in_a_backup(here, tmp_path):
    key = tmp_path / "key.pem"
    key.write_text("the key")
    given = replace(here, signing_key=str(key), signature_agent="https://bot.example/")
    file = io.BytesIO()
    with contextlib.closing(State(here.state_url)) as state:
        write_backup(file, state, given)
    assert b"the key" not in file.getvalue()
    assert b"key.pem" not in file.getvalue()
    command = dump_command(
        "postgresql+psycopg://walsh:secret@db/walsh?password=hidden&sslmode=require"
    )
    wanted = "--dbname='postgresql://walsh@db/walsh?sslmode=require'"
    assert command == f"pg_dump --format=custom --file=walsh.dump {wanted}"


def test_a_backup_that_would_lack_the_operators_blocklist_is_not_made(here):
    given = replace(here, blocklist_file="nowhere.txt")
    with (
        contextlib.closing(State(here.state_url)) as state,
        pytest.raises(CommandError, match=r"nowhere\.txt cannot be copied: No such file"),
    ):
        write_backup(io.BytesIO(), state, given)


@pytest.mark.parametrize(
    "name",
    ["new/walsh.sqlite3", "new/walsh.sqlite3-wal", "sources.toml", "2-sources.toml", "mine.toml"],
)
def test_nothing_is_restored_where_something_is(backup, there, name):
    """Where the backup has a file, or the project has its state or its sources."""
    place = Path(there.sources).parent / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    given = replace(there, sources=str(Path(there.sources).with_name("mine.toml")))
    assert refused(backup, given).startswith(f"{place} is there already")
    assert place.read_text() == "mine"


def packed(members):
    """A zip archive of names, or descriptions, and bodies."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, body in members:
            archive.writestr(name, body)
    return file.getvalue()


def members_of(body):
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def listing(body, **changes):
    """The same backup, with a manifest that was changed."""
    members = members_of(body)
    manifest = json.loads(members.pop("manifest.json")) | changes
    return packed([("manifest.json", json.dumps(manifest)), *members.items()])


def holding(body, name, content, at=-1):
    """The same backup, with another file in the place of one, which the manifest lists as it is."""
    members = members_of(body)
    manifest = json.loads(members.pop("manifest.json"))
    old = manifest["files"][at]
    described = name if isinstance(name, str) else name.filename
    digest = sha256(content).hexdigest()
    manifest["files"][at] = old | {"name": described, "size": len(content), "sha256": digest}
    rest = [(name, content) if each == old["name"] else (each, members[each]) for each in members]
    return packed([("manifest.json", json.dumps(manifest)), *rest])


def described(name, *, mode=stat.S_IFREG, packing=zipfile.ZIP_STORED):
    info = zipfile.ZipInfo(name)
    info.external_attr, info.compress_type = mode << 16, packing
    return info


def without(body, name):
    return packed([each for each in members_of(body).items() if each[0] != name])


def database(*statements):
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        for statement in statements:
            made.execute(statement)
        return made.serialize()


LATER = database(
    "CREATE TABLE schema_version (version INTEGER)", "INSERT INTO schema_version VALUES (99)"
)
OTHER = database("CREATE TABLE t (x)")
LINK = described("link.txt", mode=stat.S_IFLNK)
BOMB = described("bomb.txt", packing=zipfile.ZIP_DEFLATED)
STATE = "state.sqlite3"
WRONG = {
    "empty": (lambda body: b"", "is no whole backup"),
    "cut at the end": (lambda body: body[:-1000], "is no whole backup"),
    "cut at the begin": (lambda body: body[1000:], "backup cannot be restored"),
    "another zip": (lambda body: packed([("a.txt", b"")]), "does not begin with manifest.json"),
    "an empty zip": (lambda body: packed([]), "is no whole backup"),
    "a bit of the state": (lambda body: body.replace(b"http://a.", b"http://b.", 1), "CRC"),
    "another sources file": (
        lambda body: packed([*(members_of(body) | {"sources.toml": b"x" * 48}).items()]),
        "of sources.toml is wrong",
    ),
    "no state": (lambda body: without(body, STATE), "not what its manifest"),
    "one file more": (lambda body: packed([*members_of(body).items(), ("x.txt", b"")]), "has not"),
    "later": (lambda body: listing(body, format=2), "made by another version"),
    "no manifest": (lambda body: packed([("manifest.json", b"[" * 100_000)]), "is no whole"),
    "long manifest": (lambda body: packed([("manifest.json", b" " * 2**21)]), "does not begin"),
    "no time": (lambda body: listing(body, made="now"), "is no whole backup"),
    "the end of time": (lambda body: listing(body, made=1e300), "manifest.json is wrong"),
    "no settings": (lambda body: listing(body, settings=[]), "manifest.json is wrong"),
    "unknown": (lambda body: listing(body, more=1), "is no whole backup"),
    "path": (lambda body: holding(body, "../x.txt", b""), "which no backup has"),
    "absolute": (lambda body: holding(body, "/tmp/x.txt", b""), "which no backup has"),
    "backslash": (lambda body: holding(body, "..\\x.txt", b""), "which no backup has"),
    "folder": (lambda body: holding(body, "x.txt/", b""), "is a link, a folder"),
    "hidden": (lambda body: holding(body, ".x.txt", b""), "which no backup has"),
    "code": (lambda body: holding(body, "sitecustomize.py", b""), "which no backup has"),
    "two states": (lambda body: holding(body, STATE, b""), "which no backup has"),
    "one name twice": (lambda body: holding(body, "Sources.toml", b""), "two files of one name"),
    "link": (lambda body: holding(body, LINK, b"/etc/passwd"), "is a link, a folder"),
    "bomb": (lambda body: holding(body, BOMB, bytes(2**20)), "compressed or"),
    "no database": (lambda body: holding(body, STATE, b"x" * 9000, 0), "no sound database"),
    "empty state": (lambda body: holding(body, STATE, b"", 0), "is an empty file"),
    "another database": (lambda body: holding(body, STATE, OTHER, 0), "is no state"),
    "later state": (lambda body: holding(body, STATE, LATER, 0), "has schema version [99]"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_no_sound_backup_is_refused_and_nothing_is_written(
    body, tmp_path, there, wrong, monkeypatch
):
    monkeypatch.setattr("walsh_scrapy.state.file.CREATING_SECONDS", 0.0)
    change, words = WRONG[wrong]
    backup = tmp_path / "backup.zip"
    backup.write_bytes(change(body))
    assert words in refused(backup, there)


def test_files_that_lie_in_each_other_are_refused(body, tmp_path, there):
    """Each is stored as it is, and together they would still be more than the archive."""
    content = bytes(2**20)
    inner = packed([("inner.txt", content)])
    outer = inner[: inner.index(b"inner.txt") + len(b"inner.txt") + len(content)]
    members = members_of(body)
    manifest = json.loads(members.pop("manifest.json"))
    for name, data in (("outer.txt", outer), ("inner.txt", content)):
        entry = {"name": name, "path": "", "size": len(data), "sha256": sha256(data).hexdigest()}
        manifest["files"].append(entry)
    with zipfile.ZipFile(tmp_path / "backup.zip", "w") as archive:
        for name, data in (("manifest.json", json.dumps(manifest)), *members.items()):
            archive.writestr(name, data)
        archive.writestr("outer.txt", outer)
        around = archive.getinfo("outer.txt")
        (nested,) = zipfile.ZipFile(io.BytesIO(inner)).infolist()
        nested.header_offset = around.header_offset + 30 + len(around.filename)
        archive.filelist.append(nested)
    assert "its files overlap" in refused(tmp_path / "backup.zip", there)


def test_a_file_that_differs_from_its_digest_is_refused(backup, there):
    """As when somebody has edited it and packed it again."""
    members = members_of(backup.read_bytes())
    members["sources.toml"] = members["sources.toml"].replace(b"a.example", b"b.example")
    backup.write_bytes(packed([*members.items()]))
    assert "sources.toml has changed since the backup was made" in refused(backup, there)


def test_a_state_on_a_server_is_dumped_and_the_rest_is_restored_beside_it(
    here, backup, there, postgresql_url, tmp_path
):
    on_server = replace(here, state_url=postgresql_url)
    with contextlib.closing(State(postgresql_url)) as state, backup.open("wb") as file:
        assert not write_backup(file, state, on_server).has_state
    assert "WALSH_STATE_URL names a file, but the state" in refused(backup, there)
    given = replace(there, state_url=postgresql_url)
    with State.existing(postgresql_url) as state:
        whole = backup.read_bytes()
        backup.write_bytes(whole.replace(b"a.example", b"b.example"))
        assert "is no whole backup" in refused(backup, given)
        assert state.backups.notice() == "", "a backup that is refused leaves no mark"
        backup.write_bytes(whole)
        restore(str(backup), given)
        assert files_in(there) == ["blocked.txt", "sources.toml"]
        assert "was restored from a backup of" in state.backups.notice()
        for name in files_in(there):
            Path(there.sources).with_name(name).unlink()
        state.runs.begin(RunRecord(spider="feeds", begun=4e9))
        told = restore(str(backup), given)
        assert told[-1].startswith("the state on the server is not marked as restored")
        assert state.backups.notice() == "", "it may be live"


@pytest.mark.empty
def test_a_file_is_not_restored_into_a_server_nor_beside_a_dump_that_is_missing(
    here, backup, there, postgresql_url
):
    on_server = replace(there, state_url=postgresql_url)
    assert "WALSH_STATE_URL names a server, but the state" in refused(backup, on_server)
    body = backup.read_bytes()
    members = members_of(body)
    manifest = json.loads(members.pop("manifest.json"))
    del manifest["files"][0], members[STATE]
    backup.write_bytes(packed([("manifest.json", json.dumps(manifest)), *members.items()]))
    assert "the dump of the state first: pg_restore --dbname=postgres" in refused(backup, on_server)


def test_a_crawl_from_a_restored_state_asks_nothing_twice(loopback_web, crawl, on_state, tmp_path):
    """Nothing is due at first, and a forced visit has the validators of the state it came from."""
    web = loopback_web(site("blog.example", feed=feed(etag='"1"')))
    url, file, folder = "http://blog.example/feed", tmp_path / "backup.zip", tmp_path / "new"
    crawl(web, sources=[url])
    made = on_state("backup", "-o", tmp_path / "first.zip")
    assert made.returncode == 0
    lacks = f"the sources file {tmp_path / 'sources.txt'} is not in it: there is no such file\n"
    assert made.stderr.endswith(lacks)
    write_sources(tmp_path / "sources.txt", [url])
    made = on_state("backup", "-o", file)
    assert made.returncode == 0, made.stderr
    assert made.stderr.endswith(f"written to {file}\n")
    given = {
        "WALSH_STATE_URL": f"sqlite:///{folder / 'walsh.sqlite3'}",
        "WALSH_SOURCES": folder / "sources.txt",
    }
    restored = on_state("backup", "--restore", file, settings=given)
    assert restored.returncode == 0, restored.stderr
    assert f"  {folder / 'sources.txt'} (was {tmp_path / 'sources.txt'})\n" in restored.stdout
    again = crawl(web, settings=given)
    assert again.log == []
    assert again.stderr.count("was restored from a backup of") == 1
    forced = crawl(web, settings=given, arguments={"force": "1"})
    assert [(hit.path, hit.status) for hit in forced.log] == [("/feed", 304)]
    assert "was restored" not in forced.stderr
