"""Connections of a crawl go to the addresses that were judged and leased (R4; decisions 5, 27)."""

import asyncio
import contextlib
import socket
from types import SimpleNamespace

import pytest
from scrapy.settings import Settings

from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.options import Options
from walsh_scrapy.runtime.context import SystemClock
from walsh_scrapy.runtime.network import Network
from walsh_scrapy.wire.idle import Endpoint
from walsh_scrapy.wire.names import Addresses
from walsh_scrapy.wire.unreachable import name_not_found

#: Nobody knows the name, so a look-up of it would fail.
ENDPOINT = Endpoint("http", "nowhere.invalid", 80)


@contextlib.contextmanager
def listening(*addresses):
    """Where clients find a server, which listens at each of some addresses of this machine."""
    with contextlib.ExitStack() as stack:
        found = []
        for address in addresses:
            listener = stack.enter_context(socket.create_server((address, 0)))
            place = Addresses(((socket.AF_INET, 1, 6, "", listener.getsockname()),))
            found.append(place)
        yield found


def in_network(use):
    settings = Settings()
    context = SimpleNamespace(options=Options.from_settings(settings), clock=SystemClock(float))

    async def run():
        network = Network(settings, context, None)
        try:
            return await use(network)
        finally:
            network.idle.close()

    return asyncio.run(run())


def test_a_request_is_connected_where_it_was_found_and_nowhere_else():
    """A connection that is kept is used again only if it leads there."""

    async def use(network):
        streams = []
        for place in (here, here, there):
            stream = await network.connect(ENDPOINT, public_only=False, found=place)
            network.end(ENDPOINT, stream, is_reusable=True)
            streams.append(stream)
        return streams

    with listening("127.0.0.1", "127.0.0.2") as (here, there):
        first, again, other = in_network(use)
    assert first is again
    assert (first.peer, other.peer) == ("127.0.0.1", "127.0.0.2")


def test_a_name_that_was_not_found_fails_as_it_did():
    error = name_not_found(ENDPOINT.host, socket.gaierror(socket.EAI_NONAME, ""))

    async def use(network):
        await network.connect(ENDPOINT, public_only=False, found=error)

    with pytest.raises(Unreachable) as raised:
        in_network(use)
    assert raised.value is error.failure


def test_the_look_up_is_a_part_of_the_time_for_a_connection():
    async def use(network):
        await network.connect(ENDPOINT, public_only=False, found=late)

    with listening("127.0.0.1") as (place,):
        late = place._replace(seconds=60.0)
        with pytest.raises(Unreachable, match="did not answer a connection"):
            in_network(use)
