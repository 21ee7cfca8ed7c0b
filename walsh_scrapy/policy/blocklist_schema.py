"""JSON Schemas for the blocklist: `walsh-research-blocklist/v1`, bundled and as published.

A document is validated before it is adopted (R3, decision 14).
"""

import re
import warnings
from functools import cache
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from walsh_scrapy.policy.blocklist_document import (
    bundled_schema,
    is_clearly_valid_entry,
    strict_json,
)

_SAMPLE: Final[dict[str, Any]] = {
    "contract": "walsh-research-blocklist/v1",
    "updated": "2026-05-23T00:00:00Z",
    "operator": "Jason Walsh",
    "contact": "j@wal.sh",
    "policy": "https://wal.sh/bot/",
    "refresh": "PT6H",
    "blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}],
}
# The exceptions that jsonschema raises for schemas that cannot be used.
_UNSOUND: Final = (
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
    except _UNSOUND:
        return None
    return schema


def schema_error(document: Any, published: dict[str, Any] | None) -> str | None:  # noqa: ANN401 - any JSON
    """Return where and why a document is invalid under either schema; None if it is valid.

    A published schema that cannot be used for this document is ignored.
    """
    found = _bundled_error(document)
    if found or published is None or published == bundled_schema():
        return found
    try:
        with warnings.catch_warnings(action="ignore"):
            error = _first_error(_validator(published), document)
    except _UNSOUND:
        return None
    return _sentence(error, []) if error else None


def _bundled_error(document: Any) -> str | None:  # noqa: ANN401 - JSON not yet checked
    """Validate a document by the bundled schema.

    The schema judges each entry by itself, so the entries that are clearly valid can be left out.
    This makes validating 100,000 entries many times faster, with the same result.
    """
    blocked = document.get("blocked") if isinstance(document, dict) else None
    others: list[int] = []
    if isinstance(blocked, list):
        others = [index for index, item in enumerate(blocked) if not is_clearly_valid_entry(item)]
        document = document | {"blocked": [blocked[index] for index in others]}
    error = _first_error(_bundled_validator(), document)
    return _sentence(error, others) if error else None


@cache
def _bundled_validator() -> Validator:
    return Draft202012Validator(bundled_schema(), registry=Registry())


def _validator(schema: dict[str, Any]) -> Validator:
    kind = validator_for(schema, default=Draft202012Validator)
    draft = str(kind.META_SCHEMA["$schema"])
    if str(schema.get("$schema", draft)).rstrip("#") != draft.rstrip("#"):
        raise ValueError("its $schema is not a draft of JSON Schema that jsonschema knows")
    kind.check_schema(schema)
    return kind(schema, registry=Registry())  # without `retrieve`: a $ref fetches nothing


def _first_error(validator: Validator, document: Any) -> ValidationError | None:  # noqa: ANN401
    first = next(validator.iter_errors(document), None)  # only the first: there can be 100,000
    return best_match([first]) if first else None


def _sentence(error: ValidationError, positions: list[int]) -> str:
    steps = list(error.absolute_path)
    if positions and len(steps) > 1 and steps[0] == "blocked":
        steps[1] = positions[int(steps[1])]
    where = "".join(
        f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
        for step in steps
    )
    what = f"{error.instance!r:.100}"
    why = error.message if len(error.message) <= 200 else f"{what} violates {error.validator!r}"
    if steps[-1:] == ["domain"] and error.validator in {"pattern", "maxLength"}:
        why = f"{what} is not a host name (write it without scheme, port, path and wildcard)"
    return f"${where}: {why}"
