"""``scrapy mayfetch``: what every gate says of a URL, and why."""
