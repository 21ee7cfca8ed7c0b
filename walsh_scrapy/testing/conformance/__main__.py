"""`python -m walsh_scrapy.testing.conformance -- COMMAND...`: without a Scrapy project."""

import argparse

from walsh_scrapy.testing.conformance.commandline import (
    DESCRIPTION,
    SYNTAX,
    add_options,
    try_command,
)

if __name__ == "__main__":
    name = "python -m walsh_scrapy.testing.conformance"
    parser = argparse.ArgumentParser(name, f"{name} {SYNTAX}", DESCRIPTION)
    add_options(parser)
    parser.add_argument("command", nargs="*", help="the command and its arguments, after --")
    given = parser.parse_args()
    raise SystemExit(try_command(given.command, given))
