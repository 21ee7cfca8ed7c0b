"""A terminal in which a command runs, and what it shows there."""

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress


def shown_by(*command, columns=80, status=0, **environment):
    """Run a command in a terminal of so many columns; return what it shows there.

    The terminal has colours, unless the environment says otherwise.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")
    }
    process = subprocess.Popen(
        list(map(str, command)),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=inherited | {"TERM": "xterm"} | environment,
    )
    os.close(slave)
    output = b""
    with suppress(OSError):  # raised at the end of the output
        while part := os.read(master, 65_536):
            output += part
    os.close(master)
    assert process.wait() == status, output
    return output.decode().replace("\r\n", "\n")


def python_shows(program, *arguments, **options):
    """Run a Python program in a terminal, as `shown_by` does."""
    return shown_by(sys.executable, "-c", program, *arguments, **options)
