"""R3: a published schema as a weapon. It is given up, and the bundled one alone counts."""

import asyncio
import json

import pytest

from walsh_scrapy.politeness import schemacheck
from walsh_scrapy.politeness.limitedprocess import Limits
from walsh_scrapy.politeness.schemacheck import SchemaNotUsed, published_error

DOCUMENT = {
    "contract": "walsh-research-blocklist/v1",
    "refresh": "PT6H",
    "operator": "a" * 40 + "!",
    "blocked": [{"domain": "optedout.example"}],
}
PATTERN = {"properties": {"operator": {"pattern": "^([a-zA-Z ]+)+$"}}}
TREE = {"$ref": "#/$defs/n0", "$defs": {"n30": {}}}
TREE["$defs"] |= {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(30)}


def check(schema):
    body = json.dumps(schema).encode() if isinstance(schema, dict) else schema
    return asyncio.run(published_error(json.dumps(DOCUMENT).encode(), body))


@pytest.mark.parametrize("schema", [PATTERN, TREE], ids=["pattern", "tree of $ref"])
def test_a_check_that_would_take_for_ever_is_given_up(monkeypatch, schema):
    monkeypatch.setattr(schemacheck, "LIMITS", Limits(seconds=1, memory=2**30))
    with pytest.raises(SchemaNotUsed, match="it needs more than 1 s or 1024 MiB"):
        check(schema)


def test_a_schema_is_obeyed_or_ignored_and_never_too_long():
    assert check({"required": ["refresh"]}) is None
    assert check({"required": ["signature"]}).endswith("'signature' is a required property")
    assert check(b"[") is None
    with pytest.raises(SchemaNotUsed, match="262145 bytes"):
        check(b"{" + b" " * 262_144)
