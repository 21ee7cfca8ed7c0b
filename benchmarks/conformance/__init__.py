"""Crawlers of others in the conformance test: a small driver each, and the table of docs."""
