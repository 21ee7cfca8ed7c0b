"""Benchmarks of speed and cost. Each prints ratios to a peer or a bound of the same run."""
