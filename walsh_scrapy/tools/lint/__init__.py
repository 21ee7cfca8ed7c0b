"""``walsh lint``: what in a robots.txt means nothing, or not what it seems."""
