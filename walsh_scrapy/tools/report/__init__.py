"""``scrapy report``: one page about what runs did, and what needs the operator."""
