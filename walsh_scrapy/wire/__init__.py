"""The connection to a host: certificates, and what TLS errors mean."""
