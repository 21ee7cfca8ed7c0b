"""What the commands do and print: a file or a package for each, and modules that several share."""
