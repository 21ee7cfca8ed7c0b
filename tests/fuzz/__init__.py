"""Fuzzing: everything that reads a stranger's bytes, given bytes that nobody would think of.

`targets` is the table of what is fuzzed. `python -m tests.fuzz TARGET --seconds 600` runs long, and
`test_targets.py` runs each target briefly with the other tests.
"""
