"""JSON Schema for the blocklist: the bundled `walsh-research-blocklist/v1` and the published one.

R3: a document is validated before it is adopted (decision 14).
"""

import json
import re
from collections import Counter
from functools import cache
from importlib import resources
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

_FIELDS: Final = frozenset({"domain", "added", "reason"})
_SAMPLE: Final[dict[str, Any]] = {
    "contract": "walsh-research-blocklist/v1",
    "updated": "2026-05-23T00:00:00Z",
    "operator": "Jason Walsh",
    "contact": "j@wal.sh",
    "policy": "https://wal.sh/bot/",
    "refresh": "PT6H",
    "blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}],
}
# How a schema that is no sound one makes itself known while it is used.
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
    """Read a published schema; None if it is none that could be used (decision 14).

    A JSON object in a draft jsonschema knows, valid by that draft, whose patterns compile and
    whose references stay within it: nothing is ever fetched. Its patterns run as they are, on
    the word of the operator whose site it comes from.
    """
    try:
        schema = strict_json(body)
        if not isinstance(schema, dict):
            return None
        _validator(schema).is_valid(_SAMPLE)
    except _UNSOUND:
        return None
    return schema


@cache
def bundled_schema() -> dict[str, Any]:
    """Return the `walsh-research-blocklist/v1` schema that comes with this package (read only)."""
    text = resources.files(__package__).joinpath("blocklist.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def fault(document: Any, published: dict[str, Any] | None) -> str | None:  # noqa: ANN401 - any JSON
    """Return where and why a document breaks the bundled schema or the published one, or None.

    A published schema that proves unsound on this document is left aside.
    """
    found = _bundled_fault(document)
    if found or published is None or published == bundled_schema():
        return found
    try:
        error = _first_error(_validator(published), document)
    except _UNSOUND:
        return None
    return _sentence(error, []) if error else None


def strict_json(body: bytes) -> Any:  # noqa: ANN401 - JSON not yet checked
    """Read JSON as RFC 8259 has it: UTF-8, no BOM, no NaN, no key twice.

    Raises ValueError, or RecursionError where it is nested too deeply.
    """
    return json.loads(
        body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = counted.most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _bundled_fault(document: Any) -> str | None:  # noqa: ANN401 - JSON not yet checked
    """Validate by the bundled schema in a fraction of the time that 100,000 entries would take.

    The schema looks at each entry on its own, so those that plainly satisfy it can be left out of
    what jsonschema is given: the answer is the same.
    """
    blocked = document.get("blocked") if isinstance(document, dict) else None
    odd: list[int] = []
    if isinstance(blocked, list):
        odd = [index for index, item in enumerate(blocked) if not _plain(item)]
        document = document | {"blocked": [blocked[index] for index in odd]}
    error = _first_error(_bundled_validator(), document)
    return _sentence(error, odd) if error else None


def _plain(item: Any) -> bool:  # noqa: ANN401 - JSON not yet checked
    return (
        type(item) is dict
        and "domain" in item
        and item.keys() <= _FIELDS
        and all(type(value) is str for value in item.values())
        and len(item["domain"]) <= 254
        and _domain_pattern().search(item["domain"]) is not None
    )


@cache
def _bundled_validator() -> Validator:
    return Draft202012Validator(bundled_schema(), registry=Registry())


@cache
def _domain_pattern() -> re.Pattern[str]:
    return re.compile(bundled_schema()["$defs"]["entry"]["properties"]["domain"]["pattern"])


def _validator(schema: dict[str, Any]) -> Validator:
    kind = validator_for(schema, default=Draft202012Validator)
    draft = str(kind.META_SCHEMA["$schema"])
    if str(schema.get("$schema", draft)).rstrip("#") != draft.rstrip("#"):
        raise ValueError("its $schema is no draft of JSON Schema that is known here")
    kind.check_schema(schema)
    return kind(schema, registry=Registry())  # without `retrieve`: a $ref fetches nothing


def _first_error(validator: Validator, document: Any) -> ValidationError | None:  # noqa: ANN401
    first = next(validator.iter_errors(document), None)  # there can be 100,000 of them
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
    why = error.message if len(error.message) <= 200 else f"{what} breaks {error.validator!r}"
    if steps[-1:] == ["domain"] and error.validator in {"pattern", "maxLength"}:
        why = f"{what} is no host name (no scheme, port, path or wildcard belongs there)"
    return f"${where}: {why}"
