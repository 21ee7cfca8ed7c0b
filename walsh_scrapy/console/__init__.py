"""The program ``walsh``, for owners of sites: it needs no project, and sends no request."""
