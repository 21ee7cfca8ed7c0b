"""The work and output of the commands: a file or package per command, and shared modules."""

import os
import sys


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Else the next file that is opened gets its number, and the output is written there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - for the whole process
