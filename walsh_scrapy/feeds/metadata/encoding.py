"""The text of a document in any encoding, even if some of its bytes are damaged (R7).

One damaged byte must not garble the rest of a document. Servers declare `iso-8859-1` for
everything, and feeds copy their XML declaration from each other. So the bytes are examined first,
and a declared encoding is used only if it can decode the bytes.
"""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from encodings.aliases import aliases
from functools import cache
from typing import Final

REPLACEMENT: Final = "\ufffd"  #: the character that stands for undecodable bytes

_CHARSET: Final = re.compile(r"(?:^|[;,])\s*charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_XML_DECLARATION: Final = re.compile(
    rb"\s*<\?xml[^>]{0,200}?[\s\"']encoding\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
#: Encodings by the names that Python does not know, without punctuation: names of the WHATWG
#: Encoding Standard, and two that servers write.
_LABELS: Final = {
    "cnbig5": "big5",
    "dos874": "cp874",
    "iso88598e": "iso8859-8",
    "iso88598i": "iso8859-8",
    "isoir149": "cp949",
    "koi": "koi8-r",
    "koi8": "koi8-r",
    "koi8ru": "koi8-u",
    "koi8u": "koi8-u",
    "ksc56011989": "cp949",
    "windows31j": "cp932",
    "zhcn": "gbk",
}
_PUNCTUATION: Final = re.compile(r"[^a-z0-9]")
_X: Final = re.compile(r"\A(?:x-)+")
_WINDOWS: Final = re.compile(r"\Awin(?:dows)?(?=[0-9]{3,4}\Z)")
#: The names that Python knows, without punctuation: for `latin-2`, `cp-1251` and `big-5`.
_PYTHON_LABELS: Final = {
    _PUNCTUATION.sub("", label): codec
    for alias, codec in aliases.items()
    for label in (alias, codec)
}
#: The larger encodings that browsers read instead (WHATWG Encoding Standard), by Python's names.
_SUPERSETS: Final = {
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "shift_jis": "cp932",
    "tis-620": "cp874",
}
_DEFAULT_ENCODING: Final = "cp1252"
#: Declarations that are ignored. UTF-16 and UTF-32 are recognized by a byte order mark or by zero
#: bytes, UTF-8 by its sequences. The others are codecs of Python that no web page uses; two of them
#: need hours for a body of 15 MiB.
_NEVER_DECLARED: Final = re.compile(r"utf|idna|punycode|undefined|(raw_)?unicode_escape")
#: Undecodable bytes that a document in a declared multi-byte encoding may have: this number, or
#: this share of its bytes above 0x7F.
_MAX_UNDECODABLE_BYTES: Final = 3
_MAX_UNDECODABLE_SHARE: Final = 0.01

_ASCII: Final = bytes(range(0x80))
_ESCAPE: Final = b"\x1b"  # the encodings of ISO 2022 are ASCII with escape sequences


def to_utf8(body: bytes, content_type: str | None) -> bytes:
    """Return a document in UTF-8 without a byte order mark. Undecodable bytes become U+FFFD.

    A byte order mark decides, and so do the zero bytes of UTF-16 and UTF-32. Otherwise a document
    is UTF-8 if most of its bytes above 0x7F belong to valid sequences, whatever it declares, or if
    it declares UTF-8 or nothing and has at least one such sequence. Otherwise it has the charset of
    `content_type` or the encoding of its XML declaration: a single-byte encoding always, a
    multi-byte encoding if few bytes are undecodable. Otherwise it is windows-1252.
    """
    unicode_encoding = json.detect_encoding(body[:4])
    if unicode_encoding != "utf-8":
        return body.decode(unicode_encoding, "replace").encode("utf-8", "replace")
    if body.isascii() and _ESCAPE not in body:
        return body
    encodings = list(_declared_encodings(body, content_type))
    ascii_bytes = len(body) - len(body.translate(None, _ASCII))
    valid_bytes = len(body.decode("utf-8", "ignore").encode()) - ascii_bytes
    invalid_bytes = len(body) - ascii_bytes - valid_bytes
    declares_utf8 = not encodings or encodings[0] == "utf-8"
    if valid_bytes > invalid_bytes or (declares_utf8 and valid_bytes > 0):
        return body.decode("utf-8", "replace").encode()
    share = int(_MAX_UNDECODABLE_SHARE * (valid_bytes + invalid_bytes))
    max_undecodable = max(_MAX_UNDECODABLE_BYTES, share)
    return _decode_declared(body, encodings, max_undecodable).encode("utf-8", "replace")


def _declared_encodings(body: bytes, content_type: str | None) -> Iterator[str]:
    """Yield the names that Python has for the declared encodings: the HTTP header's comes first."""
    charset = _CHARSET.search(content_type or "")
    declaration = _XML_DECLARATION.match(body)
    labels = []
    if charset:
        labels.append(charset[1])
    if declaration:
        labels.append(declaration[1].decode("ascii", "ignore"))
    for label in labels:
        name = label.lower()
        plain = _WINDOWS.sub("cp", _PUNCTUATION.sub("", _X.sub("", name)))
        for known_as in (_LABELS.get(plain, name), _PYTHON_LABELS.get(plain, plain)):
            with suppress(LookupError):
                encoding = codecs.lookup(known_as).name
                if encoding != "utf-7":  # no browser knows it
                    yield _SUPERSETS.get(encoding, encoding)
                break


def _decode_declared(body: bytes, encodings: list[str], max_undecodable: int) -> str:
    """Return the text by the first of the encodings that the bytes allow, or by windows-1252."""
    for encoding in encodings:
        if _NEVER_DECLARED.match(encoding):
            continue
        try:
            text = _decode(body, encoding)
        except (UnicodeError, LookupError):  # Python has codecs that decode no text, such as base64
            continue
        if text.count(REPLACEMENT) <= max_undecodable or _is_single_byte(encoding):
            return text
    return body.decode(_DEFAULT_ENCODING, "replace")


@cache
def _is_single_byte(encoding: str) -> bool:
    return len(bytes(range(0x100)).decode(encoding, "replace")) == 0x100


def _decode(body: bytes, encoding: str) -> str:
    """Decode bytes as the WHATWG Encoding Standard does where Python's codec loses characters."""
    if encoding == "iso2022_jp":
        body = _iso_2022_jp_as_euc_jp(body)
        encoding = "euc_jp"
    if encoding == "euc_jp":
        return body.decode(encoding, _EUC_JP_ERRORS).translate(_WINDOWS_VARIANTS)
    if encoding == "gb18030":
        return body.decode(encoding, _GBK_ERRORS)
    text = body.decode(encoding, "replace")
    return text.translate(_CP932_NO_CHARACTERS) if encoding == "cp932" else text


#: Python decodes 0xA0 and 0xFD to 0xFF of Shift_JIS, which are undecodable, to private characters.
_CP932_NO_CHARACTERS: Final = dict.fromkeys(range(0xF8F0, 0xF8F4), REPLACEMENT)
#: Six characters of JIS X 0208, which Windows, and so the WHATWG, decode to others than Python.
_WINDOWS_VARIANTS: Final = str.maketrans(
    "\u301c\u2016\u2212\xa2\xa3\xac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"
)
_EUC_JP_ERRORS: Final = "walsh_scrapy.euc_jp"
_GBK_ERRORS: Final = "walsh_scrapy.gbk"


def _handle_euc_jp(error: UnicodeError) -> tuple[str, int]:
    """Decode a character of NEC or IBM (①, ㈱), which Python's EUC-JP lacks, by Shift_JIS."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    pair = error.object[error.start : error.start + 2]
    if len(pair) == 2 and min(pair) >= 0xA1 and max(pair) <= 0xFE:
        row = pair[0] - 0xA1
        cell = pair[1] - 0xA1
        lead = (row >> 1) + (0x81 if row < 62 else 0xC1)
        trail = cell + (0x9F if row % 2 else 0x40 if cell < 63 else 0x41)
        try:
            return bytes((lead, trail)).decode("cp932"), error.start + 2
        except UnicodeDecodeError:
            pass
    return REPLACEMENT, error.start + 1


def _handle_gbk(error: UnicodeError) -> tuple[str, int]:
    """Decode 0x80, which is the euro sign in GBK."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    if error.object[error.start] == 0x80:
        return "€", error.start + 1
    return REPLACEMENT, error.start + 1


codecs.register_error(_EUC_JP_ERRORS, _handle_euc_jp)
codecs.register_error(_GBK_ERRORS, _handle_gbk)

_MODES: Final = re.compile(rb"\x1b(\([BJI]|\$[@B])")
_HIGH_BYTES: Final = bytes(range(0x80, 0x100))
_UNDECODABLE: Final = bytes.maketrans(_HIGH_BYTES, b"\xff" * 0x80)
_TO_EUC: Final = bytes.maketrans(bytes(range(0x21, 0x7F)), bytes(range(0xA1, 0xFF)))
_KATAKANA: Final = re.compile(rb"[\x21-\x5f]")


def _iso_2022_jp_as_euc_jp(body: bytes) -> bytes:
    """Return a text of ISO-2022-JP in EUC-JP. Its bytes above 0x7F are undecodable there too."""
    first, *parts = _MODES.split(body.translate(_UNDECODABLE))
    converted = [first]
    for mode, text in zip(parts[::2], parts[1::2], strict=True):
        if mode.startswith(b"$"):
            text = text.translate(_TO_EUC)  # noqa: PLW2901
        elif mode == b"(I":
            text = _KATAKANA.sub(lambda match: bytes((0x8E, match[0][0] | 0x80)), text)  # noqa: PLW2901
        converted.append(text)
    return b"".join(converted)
