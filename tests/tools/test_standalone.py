"""`walsh init`: the project that it writes."""

from configparser import ConfigParser

import pytest

from walsh_scrapy.tools.standalone import write_project


@pytest.mark.parametrize(
    ("folder", "project"), [("my-feeds", "my-feeds"), ("My feeds", "My_feeds"), ("100%$é", "100_")]
)
def test_the_project_on_scrapyd_is_named_after_the_folder(tmp_path, folder, project):
    write_project(tmp_path / folder)
    config = ConfigParser()
    config.read(tmp_path / folder / "scrapy.cfg")
    assert config["deploy"]["project"] == project
