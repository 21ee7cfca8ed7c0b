"""The names that users import from the package; tests/typing/api.py has their types."""

import importlib
import sys

import pytest

import walsh_scrapy
from tests.helpers import ROOT, execute
from walsh_scrapy.addon import Addon
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.spider import SourcesSpider

STANDARD = sys.stdlib_module_names


def test_the_package_has_the_names_that_it_lists_and_no_other():
    listed = {name: getattr(walsh_scrapy, name) for name in walsh_scrapy.__all__}
    classes = (Addon, Denied, RequestDeferred, SourcesSpider)
    assert listed == {kind.__name__: kind for kind in classes} | {
        "__version__": walsh_scrapy.__version__
    }
    assert dir(walsh_scrapy) == sorted(listed)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = walsh_scrapy.Nothing


def test_the_import_of_the_package_imports_nothing_else():
    code = "import sys; old = {*sys.modules}; import walsh_scrapy; print(*{*sys.modules} - old)"
    done = execute(sys.executable, "-c", code, cwd=ROOT)
    imported = {name for name in done.stdout.split() if name.partition(".")[0] not in STANDARD}
    assert imported == {"walsh_scrapy"}


def test_what_the_typing_test_writes_can_be_imported():
    api = importlib.import_module("tests.typing.api")
    assert issubclass(api.OwnAddon, Addon)
