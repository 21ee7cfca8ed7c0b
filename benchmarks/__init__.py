"""How fast and how frugal: ratios against a peer or a bound, measured in one run."""
