"""A client of a web without a proxy that knows where its hosts are, and asks no resolver."""

import http.client
import socket
import ssl

from tests.helpers import LONGEST


class Client:
    """Opens connections to hosts, in TLS for https, and resumes sessions if it is told to."""

    def __init__(self, web):
        self.web = web
        self.context = ssl.create_default_context(cafile=web.environment.get("SSL_CERT_FILE"))

    def tcp(self, host, scheme="http", address=None):
        """Return a connected socket."""
        place = address or self.web.address(host), self.web.ports[scheme]
        return socket.create_connection(place, timeout=LONGEST)

    def open(self, host, scheme="http", address=None, session=None):
        """Return a connected socket, which speaks TLS if the scheme says so."""
        opened = self.tcp(host, scheme, address)
        if scheme == "http":
            return opened
        return self.context.wrap_socket(opened, server_hostname=host, session=session)

    def connection(self, host, scheme="http", **options):
        """Return an `http.client` connection, which may carry several requests."""
        connection = http.client.HTTPConnection(host, timeout=LONGEST)
        connection.sock = self.open(host, scheme, **options)
        connection.auto_open = 0
        return connection

    def get(self, host, path="/", scheme="http", asked=None, **options):
        """Return status and body of one request; `asked` is another Host."""
        connection = self.connection(host, scheme, **options)
        try:
            connection.request("GET", path, headers={"Host": asked or host})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def exchange(self, host, scheme="http", path="/"):
        """Return all bytes that answer one request, up to the end of the connection."""
        with self.open(host, scheme) as opened:
            opened.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return b"".join(iter(lambda: opened.recv(1 << 16), b""))
