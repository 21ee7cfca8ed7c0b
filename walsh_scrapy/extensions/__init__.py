"""What looks on while a crawl runs, and speaks to the operator."""
