"""Counts in sentences for operators: `1 domain`, `2 domains`."""


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun; ``plural`` is ``singular`` with an s unless given.

    `counted(1, "entry", "entries")` is `1 entry`.
    """
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"
