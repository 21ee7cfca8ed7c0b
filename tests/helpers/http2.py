"""A site over HTTP/2, served by Twisted: ``python -m tests.helpers.http2 CERTIFICATE``.

Its first line of output is its port. Each further line is a request as a JSON object: its path, its
protocol and its headers.
"""

import json
import sys
from pathlib import Path

from twisted.internet import reactor, ssl
from twisted.web.resource import Resource
from twisted.web.server import Site

ROBOTS = "User-agent: *\nDisallow: /private\n"


class Pages(Resource):
    isLeaf = True  # noqa: N815 - as Twisted calls it

    def render_GET(self, request):  # noqa: N802 - as Twisted calls it
        path = request.uri.decode()
        headers = {
            name.decode().lower(): values[-1].decode()
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        hit = {"path": path, "protocol": request.clientproto.decode(), "headers": headers}
        print(json.dumps(hit), flush=True)
        if path == "/robots.txt":
            request.setHeader("Set-Cookie", "seen=1")
            return ROBOTS.encode()
        request.setHeader("Content-Type", "text/html")
        return b"<title>x</title>"


def main(certificate):
    """Serve until the process is ended."""
    key = ssl.PrivateCertificate.loadPEM(Path(certificate).read_bytes())
    port = reactor.listenSSL(0, Site(Pages()), key.options(), interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run()


if __name__ == "__main__":
    main(sys.argv[1])
