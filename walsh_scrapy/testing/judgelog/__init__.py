"""``walsh judge``: how politely the bots in the log of a web server behaved."""
