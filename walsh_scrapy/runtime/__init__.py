"""What the parts of one crawl share: its context, its request marks, start-up checks, failures."""
