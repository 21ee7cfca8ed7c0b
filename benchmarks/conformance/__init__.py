"""Other crawlers in the conformance test: a small driver for each, and the table of the docs."""
