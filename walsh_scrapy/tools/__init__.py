"""What the commands do and print: a package for each, and modules that several of them share."""
