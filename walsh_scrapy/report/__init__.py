"""What a run tells its operator: counts and tables, as text."""
