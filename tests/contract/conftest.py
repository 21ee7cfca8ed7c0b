"""Fixtures of the tests of the contract."""

import shutil

import pytest

from walsh_scrapy.testing.crawl import run_crawl


@pytest.fixture(scope="module")
def shared_crawl(tmp_path_factory, pytestconfig, crawl_launcher):
    """Return a function that crawls a web once; the tests of a module share the result."""

    def run(web, spider="feeds", **options):
        folder, root = tmp_path_factory.mktemp("crawl"), pytestconfig.rootpath
        defaults = {"folder": folder, "project": root, "launcher": crawl_launcher}
        with web:
            return run_crawl(web, spider, **defaults | options)

    return run


@pytest.fixture
def project_with(tmp_path, pytestconfig):
    """Return a function that copies the project and adds a spider; it returns the folder."""

    def copy(spider):
        project, ours = tmp_path / "project", pytestconfig.rootpath
        spiders = shutil.copytree(ours / "spiders", project / "spiders", dirs_exist_ok=True)
        (spiders / "own.py").write_text(spider)
        shutil.copy(ours / "scrapy.cfg", project)
        if not (project / "walsh_scrapy").exists():
            (project / "walsh_scrapy").symlink_to(ours / "walsh_scrapy")
        return project

    return copy


@pytest.fixture
def installed(pytestconfig, monkeypatch):
    """Let the projects that a test makes import ours as if it were installed."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
