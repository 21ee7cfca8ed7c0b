"""What the commands do and print: a file or a package for each, and modules that several share."""


def own_package() -> tuple[str, str]:
    """Return the name of the package that this is installed as, and its version."""
    from importlib.metadata import PackageNotFoundError, version

    for name in ("walsh-scrapy", "walsh-scrapy-console"):
        try:
            return name, version(name)
        except PackageNotFoundError:  # the other one, a folder or an egg
            continue
    return "walsh-scrapy", "not installed as a package"


def own_version() -> str:
    """Return the version of this package, or that it is not installed as one."""
    return own_package()[1]
