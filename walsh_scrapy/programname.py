"""How messages write the program ``walsh``, so that a command can be copied from a message."""

import sys
from functools import cache
from pathlib import Path
from typing import Final

_INSTALLED: Final = "walsh"
_MODULE: Final = "python -m walsh_scrapy"


@cache
def program_name() -> str:
    """Return ``walsh``, or ``python -m walsh_scrapy`` where that program is not installed.

    A command uses the name under which it was called. A crawl looks for ``walsh`` on the path and
    beside this interpreter.
    """
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("walsh_scrapy", "__main__.py"):
        return _MODULE
    if called.stem == _INSTALLED:
        return _INSTALLED
    import shutil

    beside = shutil.which(_INSTALLED, path=Path(sys.executable).parent)
    return _INSTALLED if beside or shutil.which(_INSTALLED) else _MODULE
