"""The sources file in an egg is unpacked to one place; without an egg the setting is the path."""

import sys
import zipfile
from importlib import import_module

import pytest

from walsh_scrapy.feeds.sources.loading import unpack_sources
from walsh_scrapy.feeds.sources.source import SourcesError


@pytest.fixture
def egg(tmp_path, monkeypatch):
    """Return a function that makes the settings come from an egg with these files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRAPY_PROJECT", "ours")

    def activate(version, **files):
        module = f"settings_of_{version}"
        with zipfile.ZipFile(tmp_path / f"{version}.egg", "w") as archive:
            archive.writestr(f"{module}.py", "")
            for name, body in files.items():
                archive.writestr(f"{name}.toml", body)
        monkeypatch.syspath_prepend(tmp_path / f"{version}.egg")
        monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", module)
        monkeypatch.delitem(sys.modules, module, raising=False)
        import_module(module)

    return activate


def test_a_new_version_replaces_the_unpacked_file(egg, tmp_path):
    file = tmp_path / ".scrapy" / "ours" / "sources.toml"
    for version in ("v1", "v2"):
        egg(version, sources=version)
        assert unpack_sources("./sources.toml") == str(file)
        assert file.read_text() == version


def test_an_unchanged_file_is_not_written_again(egg, tmp_path):
    egg("v3", sources="same")
    before = (tmp_path / unpack_sources("sources.toml")).stat()
    assert (tmp_path / unpack_sources("sources.toml")).stat() == before


def test_a_file_that_is_not_in_the_egg_stays_where_it_is(egg, tmp_path):
    egg("v4", sources="x")
    (tmp_path / "other.toml").write_text("")
    for name in ("other.toml", tmp_path / "other.toml"):
        assert unpack_sources(str(name)) == str(tmp_path / "other.toml")
    assert not (tmp_path / ".scrapy").exists()


@pytest.mark.parametrize("name", ["other.toml", "/nowhere/sources.toml", "../sources.toml"])
def test_a_file_that_is_nowhere_is_one_line(egg, name):
    egg("v6", sources="x")
    with pytest.raises(SourcesError, match="deploy again"):
        unpack_sources(name)


def test_without_an_egg_the_setting_is_the_path(monkeypatch):
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "walsh_scrapy.settings")
    assert unpack_sources("sources.toml") == "sources.toml"


def test_an_egg_that_cannot_be_unpacked_is_one_line(egg, tmp_path):
    egg("v5", sources="x")
    (tmp_path / ".scrapy").write_text("")
    with pytest.raises(SourcesError, match="WALSH_SOURCES"):
        unpack_sources("sources.toml")
