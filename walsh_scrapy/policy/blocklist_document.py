"""The document of a blocklist: strict JSON, the bundled schema, and what is clearly valid.

`blocklist_schema` applies the schema to what is not clearly valid. It is not imported here, because
jsonschema takes long to import.
"""

import json
import re
from codecs import BOM_UTF8
from collections import Counter
from functools import cache
from importlib import resources
from typing import Any, Final

#: What a list says of itself. Each is a text.
_HEAD: Final = frozenset({"contract", "updated", "operator", "contact", "policy", "refresh"})
_FIELDS: Final = frozenset({"domain", "added", "reason"})


def strict_json(body: bytes) -> Any:  # noqa: ANN401 - JSON not yet checked
    """Read JSON strictly: in UTF-8, without NaN and duplicate keys (RFC 8259).

    A byte order mark is stripped: RFC 8259 8.1 forbids to send one, and allows to ignore it.

    Raises ValueError, or RecursionError if it is nested too deeply.
    """
    return json.loads(
        body.removeprefix(BOM_UTF8).decode("utf-8"),
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = counted.most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]!r} occurs twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def is_domain(text: str) -> bool:
    """Return True if a text is a domain as the bundled schema wants it: no URL, port or path."""
    return _domain_pattern().search(text) is not None


def is_bundled(body: bytes) -> bool:
    """Return True if a published schema is the bundled one, whatever its layout."""
    text = resources.files(__package__).joinpath("blocklist.schema.json").read_bytes()
    if body == text:
        return True
    try:
        return len(body) < 4 * len(text) and bool(strict_json(body) == bundled_schema())
    except (ValueError, RecursionError):
        return False


@cache
def bundled_schema() -> dict[str, Any]:
    """Return the bundled `walsh-research-blocklist/v1` schema; callers must not change it."""
    text = resources.files(__package__).joinpath("blocklist.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def is_clearly_valid(document: Any) -> bool:  # noqa: ANN401 - JSON not yet checked
    """Return True if a document is clearly valid under the bundled schema."""
    if type(document) is not dict:
        return False
    head = {name: value for name, value in document.items() if name != "blocked"}
    blocked = document.get("blocked")
    return (
        {"contract", "refresh"} <= head.keys() <= _HEAD
        and set(map(type, head.values())) == {str}
        and head["contract"] == bundled_schema()["properties"]["contract"]["const"]
        and type(blocked) is list
        and all(map(is_clearly_valid_entry, blocked))
    )


def is_clearly_valid_entry(item: Any) -> bool:  # noqa: ANN401 - JSON not yet checked
    """Return True if an entry is clearly valid under the bundled schema."""
    return (
        type(item) is dict
        and "domain" in item
        and item.keys() <= _FIELDS
        and set(map(type, item.values())) == {str}
        and len(item["domain"]) <= 254
        and is_domain(item["domain"])
    )


@cache
def _domain_pattern() -> re.Pattern[str]:
    return re.compile(bundled_schema()["$defs"]["entry"]["properties"]["domain"]["pattern"])
