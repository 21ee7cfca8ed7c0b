"""``scrapy mayfetch``: what each gate says of a URL, and why, without fetching it."""
