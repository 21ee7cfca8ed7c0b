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


def own_code() -> str:
    """Return the SHA-256 of the files of this package, by which every version is told apart."""
    from hashlib import sha256
    from pathlib import Path

    root, digest = Path(__file__).parents[1], sha256()
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(
                f"{file.relative_to(root)}\0{sha256(file.read_bytes()).hexdigest()}\n".encode()
            )
    return digest.hexdigest()
