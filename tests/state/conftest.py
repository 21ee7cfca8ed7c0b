"""The fixtures of the state."""

from tests.helpers.statefixtures import *  # noqa: F403 - pytest finds fixtures by their names
