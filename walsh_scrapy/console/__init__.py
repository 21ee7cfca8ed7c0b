"""The program ``walsh``: it needs no project, and sends no request."""
