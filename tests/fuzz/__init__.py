"""Fuzzing: everything that reads a stranger's bytes, given bytes that nobody would think of.

`targets` is the table of what is fuzzed, and `test_targets.py` runs each target briefly with the
other tests. What is found is kept as a case: an `@example`, or a row of a test of the reader.
"""
