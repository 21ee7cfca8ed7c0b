"""Fixtures of the tests of the contract."""

import pytest


@pytest.fixture
def again(crawl):
    """Run once more over the same state, although nothing is due."""

    def run(web, spider="feeds", **options):
        return crawl(
            web, spider, **options, arguments={"force": "1"} | options.pop("arguments", {})
        )

    return run


@pytest.fixture
def installed(pytestconfig, monkeypatch):
    """Let the projects that a test makes import ours as if it were installed."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
