"""Speed and cost: ratios against a peer or a bound, measured in one run."""
