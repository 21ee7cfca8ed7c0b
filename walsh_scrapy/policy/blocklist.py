"""The blocklist: domains whose owners opted out, for example by mail (R3).

A published list is a JSON document, which must satisfy the bundled schema
`walsh-research-blocklist/v1` and the published schema. It is adopted as a whole or refused as a
whole; then the caller keeps the last good list. An adopted list is stored as text, and never
validated again, so that a new version of these checks drops no opt-out.

A local list is a text file with one domain per line. It can only add entries.
"""

from __future__ import annotations

import json
import re
import warnings
from codecs import BOM_UTF8
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from importlib import resources
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, ClassVar, Final

from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import format_ip, host_of
from walsh_scrapy.policy.wording import cut, for_others, printable, storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

#: The limits of `Blocklist.refresh`.
MIN_REFRESH: Final = timedelta(minutes=1)
MAX_REFRESH: Final = timedelta(days=7)
#: The `Blocklist.refresh` of a document whose own value is not a duration.
DEFAULT_REFRESH: Final = "PT6H"

#: The maximum length of a reason, or of the date of an opt-out. The rest is cut.
MAX_REASON_CHARACTERS: Final = 200

_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|[0-9a-f:]+")
#: A domain that `host_of` would return unchanged, so that it need not be called. The last label
#: begins with a letter. A-labels (`xn--`) are left to `host_of`.
_PLAIN_DOMAIN: Final = re.compile(
    r"(?:(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)++(?!xn--)[a-z][a-z0-9]{0,62}"
)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class InvalidBlocklist(ValueError):
    """A document that must not be adopted. The message says where the fault is, and which."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One domain of a published blocklist."""

    domain: str  #: in the form that `host_of` returns
    added: str = ""  #: the date, as in the document; "" if it has none
    reason: str = ""  #: "" if the document has none

    @property
    def why(self) -> str:
        """Why the domain gets no request, as a sentence without a full stop."""
        day = self.added or "an unknown day"
        return f"{self.domain} opted out on {day}: {self.reason or 'no reason'}"


@dataclass(frozen=True, slots=True)
class LocalEntry(Entry):
    """A domain of a local list; ``place`` is its line: `line 3 of blocklist.txt`."""

    place: str = ""

    @property
    def why(self) -> str:
        """Why the domain gets no request, as a sentence without a full stop."""
        because = f": {self.reason}" if self.reason else ""
        return f"{self.domain} is in {self.place}{because}"


@dataclass(frozen=True, slots=True)
class Blocklist:
    """The domains that get no requests, and after what time the list is fetched again.

    `refresh` is the document's, but at least one minute, to request the list no more often, and at
    most seven days, so that a mistake (`P10W`) does not delay opt-outs for weeks.
    """

    entries: Mapping[str, Entry] = field(repr=False)
    refresh: timedelta
    problem: str = ""  #: a sentence about a wrong `refresh`; "" if it was right

    #: Used until the first list was fetched. It blocks nothing, and is fetched again in an hour.
    EMPTY: ClassVar[Blocklist]

    @classmethod
    def parse(cls, body: bytes, schema: dict[str, Any] | None = None) -> Blocklist:
        """Read a `walsh-research-blocklist/v1` document.

        It must satisfy the bundled schema and, if given, the published `schema`, unless that cannot
        be used (see `sound_schema`). A wrong `refresh` is replaced by `DEFAULT_REFRESH`, because a
        typing error there must not keep opt-outs back. Raises InvalidBlocklist.

        >>> Blocklist.parse(b"[]")
        Traceback (most recent call last):
        walsh_scrapy.policy.blocklist.InvalidBlocklist: the blocklist is invalid at $: ...
        """
        document, refresh, problem = _with_refresh(_load(body))
        if error := schema_error(document, schema):
            raise _invalid(error)
        entries: dict[str, Entry] = {}
        for index, item in enumerate(document["blocked"]):
            entry = _entry_of(item)
            if entry is None:
                problem = f"{item['domain']!r} is not a host name"
                raise _invalid(f"$.blocked[{index}].domain: {problem}")
            entries.setdefault(entry.domain, entry)
        return cls(entries, refresh, problem)

    def text(self) -> str:
        r"""Return the list as the state stores it: sorted, one entry per line.

        No entry contains a tab or a line feed, because its texts were made printable.
        """
        head = json.dumps([self.refresh.total_seconds(), self.problem])
        entries = (
            f"{entry.domain}\t{entry.added}\t{entry.reason}" for entry in self.entries.values()
        )
        return "\n".join([head, *sorted(entries)])

    @classmethod
    def of_text(cls, text: str) -> Blocklist:
        """Return the list that `text` returned as ``text``."""
        head, *lines = text.split("\n")
        seconds, problem = json.loads(head)
        entries = (Entry(*line.split("\t")) for line in lines)
        return cls({entry.domain: entry for entry in entries}, timedelta(seconds=seconds), problem)

    def blocks(self, url: str) -> Entry | None:
        """Return the entry of the URL's host, or of its nearest parent domain; else None (R3).

        IP addresses have no parent domains. Never raises.
        """
        host = host_of(url)
        if entry := self.entries.get(host):
            return entry
        if ":" in host or host.rpartition(".")[2].isdigit():  # an IP address
            return self.entries.get(_mapped_ipv4(host))
        while host := host.partition(".")[2]:
            if entry := self.entries.get(host):
                return entry
        return None

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return True  # a list without entries is still a list


Blocklist.EMPTY = Blocklist({}, timedelta(hours=1))


def check_schema(body: bytes, published: bytes) -> None:
    """Raise InvalidBlocklist for a document that does not satisfy a published schema.

    A schema that cannot be used is ignored. May take long, so a crawl calls this in a separate
    process.
    """
    Blocklist.parse(body, sound_schema(published))


def parse_local(body: bytes, name: str) -> Blocklist:
    """Read a local list; ``name`` is the name of its file.

    It has one domain per line. `#` begins a comment, which is the reason if a domain stands before
    it. Raises InvalidBlocklist with the file, the line, and the problem.
    """
    try:
        local_entries = _read_entries(body, name)
    except InvalidBlocklist as error:
        raise InvalidBlocklist(f"{name}: {error}") from None
    entries: dict[str, Entry] = {}
    for entry in local_entries:
        entries.setdefault(entry.domain, entry)
    return Blocklist(entries, Blocklist.EMPTY.refresh)


def _read_entries(body: bytes, name: str) -> list[LocalEntry]:
    body = body.removeprefix(BOM_UTF8)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        number = len(_LINE_END.split(body[: error.start].decode("utf-8")))
        raise InvalidBlocklist(f"line {number}: it is not UTF-8; save it as UTF-8") from None
    entries = []
    for number, line in enumerate(_LINE_END.split(text), 1):
        before, _, behind = line.partition("#")
        domain = before.strip()
        if not domain:
            continue
        item = {"domain": domain, "reason": behind.strip()}
        entry = _entry_of(item) if is_domain(domain) else None
        if entry is None:
            raise InvalidBlocklist(
                f"line {number}: {domain[:80]!r} is not a host name (write one per line, without "
                "scheme, port, path and wildcard)"
            )
        place = f"line {number} of {name}"
        entries.append(LocalEntry(entry.domain, reason=entry.reason, place=place))
    return entries


def _load(body: bytes) -> Any:  # noqa: ANN401 - JSON not yet checked
    try:
        return strict_json(body)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8"
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise InvalidBlocklist(f"the blocklist is not JSON: {problem}")


def _invalid(error: str) -> InvalidBlocklist:
    return InvalidBlocklist(f"the blocklist is invalid at {error}")


def _with_refresh(document: Any) -> tuple[Any, timedelta, str]:  # noqa: ANN401 - JSON
    """Return a document with a valid `refresh`, its duration, and the problem or ""."""
    problem = ""
    if isinstance(document, dict):
        value = document.get("refresh")
        try:
            refresh = parse_duration(value if isinstance(value, str) else "")
        except ValueError:
            problem = f"$.refresh is {value!r:.40}, not a duration; {DEFAULT_REFRESH} is used"
            document = document | {"refresh": DEFAULT_REFRESH}
            refresh = parse_duration(DEFAULT_REFRESH)
    else:
        refresh = Blocklist.EMPTY.refresh
    return document, min(max(refresh, MIN_REFRESH), MAX_REFRESH), problem


def _entry_of(item: dict[str, Any]) -> Entry | None:
    """Return the entry of an item, whose domain is a string; None if it is not a host name."""
    domain: str = item["domain"]
    added = _display(item.get("added"))
    reason = _display(item.get("reason"))
    if _PLAIN_DOMAIN.fullmatch(domain) and len(domain) <= 253:
        return Entry(domain, added, reason)
    if ":" in domain:
        host = host_of(f"http://[{domain.strip('[]')}]/")
    else:  # an impossible host name blocks nothing, but is no reason to refuse the whole list
        host = host_of(f"http://{domain}/") or domain.lower().removesuffix(".")
    if not _HOST.fullmatch(host):
        return None
    return Entry(_mapped_ipv4(host) or host, added, reason)


def _display(text: object) -> str:
    """Return a value of an entry as text that is safe to show."""
    return _cached_display(str(text)) if text else ""


@lru_cache(maxsize=64)  # most entries of a list have the same reason, and share one string
def _cached_display(text: str) -> str:
    return cut(for_others(printable(storable(text))), MAX_REASON_CHARACTERS)


def _mapped_ipv4(host: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; "" for any other host."""
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    return format_ip(mapped) if mapped else ""


# ---- The document: strict JSON, valid under both schemas ----

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
    """Read JSON strictly: UTF-8 only, no NaN, no duplicate keys (RFC 8259).

    A byte order mark is ignored, as RFC 8259 8.1 allows. Raises ValueError, or RecursionError if
    the document is nested too deeply.
    """
    return json.loads(
        body.removeprefix(BOM_UTF8).decode("utf-8"),
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = counts.most_common(1)[0][0]
        raise ValueError(f"the key {duplicate[:40]!r} occurs twice in one object")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def is_domain(text: str) -> bool:
    """Return True if the bundled schema accepts a text as a domain: no URL, port or path."""
    return _domain_pattern().search(text) is not None


def is_bundled(body: bytes) -> bool:
    """Return True if a published schema equals the bundled one, apart from its layout."""
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
    """Read a published schema; return None if it cannot be used. Never raises.

    It must be a JSON object that is valid under a draft that jsonschema knows, with patterns that
    compile, and without references to other documents, because nothing is ever fetched.

    A hostile schema can take any time to read and use, so a crawl does both in another process.
    """
    try:
        schema = strict_json(body)
        if not isinstance(schema, dict):
            return None
        with warnings.catch_warnings(action="ignore"):  # of `re`, about a doubtful pattern
            _validator(schema).is_valid(_SAMPLE)
    except _schema_errors():
        return None
    return schema


def schema_error(document: Any, published: dict[str, Any] | None) -> str | None:  # noqa: ANN401 - any JSON
    """Return where and why a document does not satisfy either schema, or None if it is valid.

    A published schema that cannot be used for this document is ignored.
    """
    error = _bundled_error(document)
    if error or published is None or published == bundled_schema():
        return error
    from jsonschema.exceptions import best_match

    try:
        with warnings.catch_warnings(action="ignore"):
            # Only the first error: there can be 100,000.
            first = next(_validator(published).iter_errors(document), None)
            return _sentence(best_match([first])) if first else None
    except _schema_errors():
        return None


def _bundled_error(document: Any) -> str | None:  # noqa: ANN401 - JSON not yet checked
    from fastjsonschema import JsonSchemaValueException

    try:
        _bundled_check()(document)
    except JsonSchemaValueException as error:
        name = str(error.name)
        path = name.removeprefix("data")  # such as `.blocked[0].domain`
        problem = f"{error.value!r:.100} {error.message.removeprefix(name).strip():.200}"
        if error.rule == "required":
            missing = next(key for key in error.rule_definition if key not in error.value)
            problem = f"{missing!r} is a required property"
        elif path.endswith(".domain") and error.rule in ("pattern", "maxLength"):
            hint = "is not a host name (write it without scheme, port, path and wildcard)"
            problem = f"{error.value!r:.100} {hint}"
        return f"${path}: {problem}"
    return None


@cache
def _bundled_check() -> Callable[[Any], Any]:
    """Return the bundled schema as compiled code, which checks 100,000 entries in one second."""
    import fastjsonschema

    check: Callable[[Any], Any] = fastjsonschema.compile(
        bundled_schema(), use_default=False, use_formats=False
    )
    return check


@cache
def _schema_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that jsonschema raises for a schema that cannot be used."""
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
    value = f"{error.instance!r:.100}"
    problem = (
        error.message if len(error.message) <= 200 else f"{value} violates {error.validator!r}"
    )
    return f"{error.json_path}: {problem}"
