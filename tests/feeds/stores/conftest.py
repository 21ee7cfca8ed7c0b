"""The fixtures of the state, which the stores of the feed crawler share."""

from tests.helpers.statefixtures import *  # noqa: F403 - pytest finds fixtures by their names
