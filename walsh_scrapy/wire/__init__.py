"""The connection to a host: how its certificate is verified, and what a TLS error means."""
