"""How messages name the program ``walsh``, so that a command can be copied from them."""

import sys
from functools import cache
from pathlib import Path
from typing import Final

_INSTALLED: Final = "walsh"
_MODULE: Final = "python -m walsh_scrapy"


@cache
def program_name() -> str:
    """Return the program as it was called; in any other process, such as a crawl, as it can be.

    That is ``walsh`` if it is installed, on the path or beside this interpreter.
    """
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("walsh_scrapy", "__main__.py"):
        return _MODULE
    if called.stem == _INSTALLED:
        return _INSTALLED
    import shutil

    beside = shutil.which(_INSTALLED, path=Path(sys.executable).parent)
    return _INSTALLED if beside or shutil.which(_INSTALLED) else _MODULE
