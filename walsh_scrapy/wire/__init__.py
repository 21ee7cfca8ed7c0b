"""TLS connections: how certificates are verified, and what a TLS error means."""
