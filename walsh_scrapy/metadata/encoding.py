"""The character encoding of a body. Valid UTF-8 is read as UTF-8, whatever is declared.

Declarations are often wrong: servers declare `iso-8859-1` for everything, and feeds copy their
first line from each other. Text in another encoding is hardly ever valid UTF-8 by accident.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final

from w3lib.encoding import http_content_type_encoding, resolve_encoding

_DECLARED: Final = re.compile(rb"\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")
_FALLBACK: Final = "cp1252"
# Codecs of Python that no web page uses. Two of them need hours for a body of 15 MiB.
_NEVER: Final = frozenset({"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape"})
_ESCAPE: Final = b"\x1b"  # ISO-2022 encodings are ASCII with escape sequences


def to_utf8(body: bytes, content_type: str | None) -> bytes:
    """Return the body in UTF-8 without a BOM.

    Tried in this order: UTF-8 as it stands, the charset of `content_type`, the encoding of the XML
    declaration, windows-1252. Bytes that cannot be decoded become U+FFFD.
    """
    wide = json.detect_encoding(body[:4])  # by BOM or zero bytes
    if wide != "utf-8":
        return body.decode(wide, "replace").encode("utf-8", "replace")
    if _ESCAPE not in body and _is_utf8(body):
        return body
    for encoding in _declared_encodings(body, content_type):
        try:
            return body.decode(encoding).encode()
        except (UnicodeError, LookupError):  # Python has codecs that decode no text, as base64
            continue
    return body.decode(_FALLBACK, "replace").encode()


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _declared_encodings(body: bytes, content_type: str | None) -> Iterator[str]:
    declared = _DECLARED.match(body)
    for name in (
        http_content_type_encoding(content_type),
        declared[1].decode("ascii", "ignore") if declared else None,
        "utf-8",
    ):
        encoding = resolve_encoding(name) if name else None
        if encoding and codecs.lookup(encoding).name not in _NEVER:
            yield encoding
