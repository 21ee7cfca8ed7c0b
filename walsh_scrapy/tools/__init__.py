"""What the commands do and print: a package a command, and what several of them share."""
