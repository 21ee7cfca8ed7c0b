"""One visit of a declared source: when it is due, what came of it, when it is due again (R8)."""
