"""The program ``walsh``: its command line."""
