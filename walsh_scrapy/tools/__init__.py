"""What the commands do and print: a module or package for each command, and shared modules."""

import os
import sys


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next file that is opened would get the number of the stream, and the output of the
    program would be written into that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - for the whole process
