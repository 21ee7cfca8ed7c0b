"""The document of a blocklist: strict JSON, valid under `walsh-research-blocklist/v1` (R3).

A document is validated before it is adopted (decision 14), under the bundled schema and the one
that is published. Only the published one needs jsonschema, which takes long to import.
"""

from __future__ import annotations

import json
import re
import warnings
from codecs import BOM_UTF8
from collections import Counter
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_SAMPLE: Final[dict[str, Any]] = {
    "contract": "walsh-research-blocklist/v1",
    "updated": "2026-05-23T00:00:00Z",
    "operator": "Jason Walsh",
    "contact": "j@wal.sh",
    "policy": "https://wal.sh/bot/",
    "refresh": "PT6H",
    "blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}],
}


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


@cache
def _domain_pattern() -> re.Pattern[str]:
    return re.compile(bundled_schema()["$defs"]["entry"]["properties"]["domain"]["pattern"])


def sound_schema(body: bytes) -> dict[str, Any] | None:
    """Read a published schema; None if it cannot be used (decision 14).

    It has to be a JSON object that is valid under a draft known to jsonschema, with patterns that
    compile, and without references to other documents: nothing is ever fetched. Never raises.

    It may cost any time, to be read and to be used, so a crawl does both in a process of its own.
    """
    try:
        schema = strict_json(body)
        if not isinstance(schema, dict):
            return None
        with warnings.catch_warnings(action="ignore"):  # of `re`, about a doubtful pattern
            _validator(schema).is_valid(_SAMPLE)
    except _unsound():
        return None
    return schema


def schema_error(document: Any, published: dict[str, Any] | None) -> str | None:  # noqa: ANN401 - any JSON
    """Return where and why a document is invalid under either schema; None if it is valid.

    A published schema that cannot be used for this document is ignored.
    """
    found = _bundled_error(document)
    if found or published is None or published == bundled_schema():
        return found
    from jsonschema.exceptions import best_match

    try:
        with warnings.catch_warnings(action="ignore"):
            # Only the first one: there can be 100,000.
            first = next(_validator(published).iter_errors(document), None)
            return _sentence(best_match([first])) if first else None
    except _unsound():
        return None


def _bundled_error(document: Any) -> str | None:  # noqa: ANN401 - JSON not yet checked
    from fastjsonschema import JsonSchemaValueException

    try:
        _bundled_check()(document)
    except JsonSchemaValueException as error:
        name = str(error.name)
        where = name.removeprefix("data")  # such as `.blocked[0].domain`
        why = f"{error.value!r:.100} {error.message.removeprefix(name).strip():.200}"
        if error.rule == "required":
            missing = next(each for each in error.rule_definition if each not in error.value)
            why = f"{missing!r} is a required property"
        elif where.endswith(".domain") and error.rule in ("pattern", "maxLength"):
            what = "is not a host name (write it without scheme, port, path and wildcard)"
            why = f"{error.value!r:.100} {what}"
        return f"${where}: {why}"
    return None


@cache
def _bundled_check() -> Callable[[Any], Any]:
    """Return the bundled schema as compiled code: 100,000 entries take a second."""
    import fastjsonschema

    check: Callable[[Any], Any] = fastjsonschema.compile(
        bundled_schema(), use_default=False, use_formats=False
    )
    return check


@cache
def _unsound() -> tuple[type[Exception], ...]:
    """Return the exceptions that jsonschema raises for schemas that cannot be used."""
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    return (
        Unresolvable,
        SchemaError,
        re.error,
        RecursionError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    )


def _validator(schema: dict[str, Any]) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = validator_for(schema, default=Draft202012Validator)
    draft = str(kind.META_SCHEMA["$schema"])
    if str(schema.get("$schema", draft)).rstrip("#") != draft.rstrip("#"):
        raise ValueError("its $schema is not a draft of JSON Schema that jsonschema knows")
    kind.check_schema(schema)
    return kind(schema, registry=Registry())  # without `retrieve`: a $ref fetches nothing


def _sentence(error: ValidationError) -> str:
    what = f"{error.instance!r:.100}"
    why = error.message if len(error.message) <= 200 else f"{what} violates {error.validator!r}"
    return f"{error.json_path}: {why}"
