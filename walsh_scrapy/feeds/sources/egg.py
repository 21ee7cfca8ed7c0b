"""The sources file of a project that Scrapyd runs from an egg, which is a zip file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from zipimport import zipimporter

from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.files import atomic_file


def unpack_sources(name: str) -> str:
    """Return the path of the sources file that the setting names.

    If the egg of the project has that file, it is unpacked below the current folder. The path is
    the same for each version of the project, because the state knows a file by its path. Raises
    SourcesError if the file is missing, or cannot be written.
    """
    settings = sys.modules.get(os.environ.get("SCRAPY_SETTINGS_MODULE", ""))
    egg = getattr(settings, "__loader__", None)
    if not isinstance(egg, zipimporter):
        return name
    try:
        body = egg.get_data(os.path.normpath(name))
    except OSError:  # the egg has no such file
        file = Path(name).absolute()
        if file.exists():
            return str(file)
        raise SourcesError(
            f"there is no {file}, and no {name} in the egg: put the file beside setup.py and "
            "deploy again, or set WALSH_SOURCES to an absolute path"
        ) from None
    project = os.environ.get("SCRAPY_PROJECT", "default")
    file = Path(".scrapy", project, Path(name).name).absolute()
    try:
        if not file.exists() or file.read_bytes() != body:
            with atomic_file(file) as output:
                output.write(body)
    except OSError as error:
        raise SourcesError(
            f"{file}: the sources of the egg cannot be unpacked: {error.strerror}; set "
            "WALSH_SOURCES to the absolute path of a sources file"
        ) from error
    return str(file)
