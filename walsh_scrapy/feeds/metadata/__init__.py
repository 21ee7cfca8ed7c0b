"""Parsers: bytes of a feed or an llms.txt to entries, with metadata only (R6)."""
