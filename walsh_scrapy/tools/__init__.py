"""What the commands do and print: a package for each, and modules that several of them share."""


def own_version() -> str:
    """Return the version of this package, or that it is not installed as one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("walsh-scrapy")
    except PackageNotFoundError:  # run from a folder or an egg
        return "not installed as a package"
