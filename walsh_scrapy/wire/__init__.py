"""The wire: names, connections, TLS, and one bounded HTTP/1.1 exchange at a time."""
