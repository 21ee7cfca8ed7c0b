"""What tests of several commands share."""

import pytest
from scrapy.cmdline import execute
from scrapy.utils.project import get_project_settings

from tests.helpers import ROOT


@pytest.fixture
def called(tmp_path, monkeypatch, capfd):
    """Return a function that calls a command in this process, in a project in a new folder.

    It returns the exit status, and what was printed: on standard output, and on standard error.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "walsh_scrapy.settings")
    monkeypatch.syspath_prepend(ROOT)

    def call(name, *words, **given):
        settings = get_project_settings()
        settings.update(given, priority="project")
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", name, *map(str, words)], settings)
        return (ended.value.code or 0, *capfd.readouterr())

    return call
