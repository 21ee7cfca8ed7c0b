"""What may enter a crawl and what may leave it: declared targets in, new entries out."""
