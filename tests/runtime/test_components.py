"""What results from all settings: each gate has one name, and none of them is missing."""

import pytest
from scrapy.core.downloader.handlers.file import FileDownloadHandler
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.settings import Settings

from walsh_scrapy.addon import Addon
from walsh_scrapy.runtime.components import component_problems, path_of
from walsh_scrapy.runtime.gates import REPLACED, SPIDER_GATES, Gate

ADDON = {"walsh_scrapy.Addon": 500}


def forced(**given):
    settings = Settings({"ADDONS": ADDON} | given)
    Addon(None).update_settings(settings)
    return settings


def test_what_the_add_on_sets_is_in_order():
    assert list(component_problems(forced())) == []


@pytest.mark.parametrize(
    "given",
    [
        {"DOWNLOADER_MIDDLEWARES": {gate.kind: None for gate in Gate}},
        {"DOWNLOADER_MIDDLEWARES": {gate.kind: 700 for gate in Gate}},
        {"DOWNLOADER_MIDDLEWARES_BASE": {gate.kind: 700 for gate in Gate}},
        {"DOWNLOADER_MIDDLEWARES": {"walsh_scrapy.downloadermiddlewares.Gone": None}},
        {"DOWNLOADER_MIDDLEWARES": {f"{__name__}.SAME_AS_ROBOTS": None}},
        {"SPIDER_MIDDLEWARES_BASE": {}, "SPIDER_MIDDLEWARES": '{"x": null}'},
        {"DOWNLOAD_HANDLERS": {"HTTP": FileDownloadHandler, "x": FileDownloadHandler}},
        {"DOWNLOAD_HANDLERS_BASE": {"HTTPS": FileDownloadHandler}},
        {"COMPRESSION_ENABLED": False, "DOWNLOADER": "x.y", "SCHEDULER": "x.y"},
    ],
)
def test_whatever_a_project_names_its_gates_they_are_all_there_once(given):
    assert list(component_problems(forced(**given))) == []


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        *(("DOWNLOADER_MIDDLEWARES", gate.kind, None) for gate in Gate),
        ("DOWNLOADER_MIDDLEWARES", Gate.ROBOTS.path, 895),
        ("DOWNLOADER_MIDDLEWARES_BASE", Gate.ROBOTS.kind, 1),
        ("DOWNLOADER_MIDDLEWARES", REPLACED[1], 601),
        ("SPIDER_MIDDLEWARES", next(iter(SPIDER_GATES)), None),
        ("DOWNLOAD_HANDLERS", "ftp", FileDownloadHandler),
        ("DOWNLOAD_HANDLERS", "http", None),
    ],
)
def test_what_changes_the_gates_after_the_add_on_is_refused(name, key, value):
    settings = forced()
    settings[name].set(key, value, priority=200)
    assert any(name.removesuffix("_BASE") in str(error) for error in component_problems(settings))


@pytest.mark.parametrize("name", ["SCHEDULER", "DOWNLOADER", "COMPRESSION_ENABLED"])
def test_a_setting_that_is_changed_after_the_add_on_is_refused(name):
    settings = forced()
    settings.set(name, 0 if name == "COMPRESSION_ENABLED" else RetryMiddleware, priority=200)
    assert any(name in str(error) for error in component_problems(settings))


def test_without_the_add_on_nothing_is_asked_for():
    assert list(component_problems(Settings())) == []
    assert list(component_problems(Settings({"ADDONS": ADDON, "WALSH_ENABLED": False}))) == []


SAME_AS_ROBOTS = Gate.ROBOTS.kind


def test_a_component_has_one_path_and_one_that_cannot_be_imported_none():
    assert path_of(RetryMiddleware) == path_of("scrapy.downloadermiddlewares.retry.RetryMiddleware")
    assert path_of(f"{__name__}.SAME_AS_ROBOTS") == Gate.ROBOTS.path
    assert path_of("nowhere.Nothing") == path_of("x") == path_of(3) == ""


def test_a_gate_that_a_project_switches_off_is_named(caplog):
    forced(DOWNLOADER_MIDDLEWARES={Gate.PACING.path: None, REPLACED[0]: None})
    assert f"{Gate.PACING.path} = None (instead: 890)" in caplog.text
    assert REPLACED[0] not in caplog.text
