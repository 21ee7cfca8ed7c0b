"""Visits of declared sources: which are due, their outcomes, and when the next is due (R8)."""
