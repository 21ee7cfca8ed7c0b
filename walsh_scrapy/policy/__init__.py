"""Pure decisions: what the contract asks, with time, randomness and bytes as arguments."""
