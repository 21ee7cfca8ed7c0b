"""Scrapy's lines that no operator needs are DEBUG lines; all others stay as they are."""

import logging

import pytest

from walsh_scrapy.crawl.log import UNNEEDED, quiet_scrapy


@pytest.fixture
def filters():
    """Scrapy's loggers as they were, after the test."""
    before = {name: list(logging.getLogger(name).filters) for name in UNNEEDED}
    yield
    for name, kept in before.items():
        logging.getLogger(name).filters[:] = kept


@pytest.mark.parametrize(
    ("logger", "level", "message", "shown"),
    [
        ("scrapy.utils.log", logging.INFO, "Scrapy %(version)s started", logging.DEBUG),
        ("scrapy.crawler", logging.INFO, "Overridden settings:\n%(settings)s", logging.DEBUG),
        ("scrapy.crawler", logging.INFO, "Received %(signame)s, shutting down", logging.INFO),
        ("scrapy.middleware", logging.WARNING, "Enabled nothing", logging.WARNING),
        ("scrapy.core.engine", logging.INFO, "Error while removing request", logging.INFO),
        ("scrapy.core.engine", logging.INFO, "Closing spider (%(reason)s)", logging.DEBUG),
    ],
)
def test_the_level_of_a_line(filters, caplog, logger, level, message, shown):
    quiet_scrapy()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger(logger).log(
            level, message, dict.fromkeys(("version", "settings", "reason", "signame"), "x")
        )
    assert [record.levelno for record in caplog.records] == [shown]
