"""What the commands say and write: answers, tables and files."""
