"""Make a feed well-formed, so that one parser reads every feed.

Well-formed parts keep their value, whatever is broken next to them, so that the keys of entries do
not change. A `&` that begins no reference is text, and so is a `<` that begins no tag. Control
characters are removed, and so are end tags without a start tag. An element without an end tag ends
where the next tag begins, an entry where the next entry begins. The root and the channel end at the
end of the document.
"""

import re
from dataclasses import dataclass
from html.entities import html5
from typing import Final

from feedparser.mixin import _FeedParserMixin

from walsh_scrapy.feeds.metadata.formats import FEED_ROOTS

# No tag contains a `<`. So an attempt to match a tag ends at the next `<`, and the time is linear.
# A comment or CDATA section without an end mark extends to the end of the document. A piece of text
# has at most 1000 references, which limits the memory for them.
_TOKEN: Final = re.compile(
    rb"""<!--(?:.*?-->|.*)
    |<!\[CDATA\[(?P<quoted>.*?)(?:\]\]>|\Z)
    |<[!?][^>]*+>?
    |<(?P<end>/?)(?P<name>[A-Za-z_\x80-\xff][^\s<>/=&"']*+)
     (?P<rest>(?:"[^"<]*+"|'[^'<]*+'|[^<>"'])*+|[^<>]*+)>
    |(?P<text><?[^<&]*+(?:&[^<&]*+){0,1000}+)""",
    re.DOTALL | re.VERBOSE,
)
_ATTRIBUTE: Final = re.compile(
    rb"""([^\s="'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++)))?+"""
)
_NAME: Final = re.compile(rb"(?:([A-Za-z_][\w.-]*+):)?([A-Za-z_][\w.-]*+)")
_REFERENCE: Final = re.compile(rb"&#(?:x0*([0-9a-fA-F]{1,8})|0*([0-9]{1,8}));")
_REFERENCES: Final = re.compile(rb"(?:&#(?:x0*[0-9a-fA-F]{1,8}|0*[0-9]{1,8});)+")
_AMPERSAND: Final = re.compile(rb"&(?!(?:\w+|#[0-9]{1,7});)")
_NAMED: Final = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos);)(\w+);")
_PREDEFINED: Final = frozenset({"amp", "lt", "gt", "quot", "apos"})
_REPLACEMENT: Final = "\ufffd"
_CONTROLS: Final = bytes({*range(32)} - {*b"\t\n\r"})
_NO_CHARACTER: Final = re.compile(b"\xef\xbf[\xbe\xbf]")  # U+FFFE and U+FFFF
_ENTRIES: Final = frozenset({b"item", b"entry"})
_CONTAINERS: Final = FEED_ROOTS | {b"channel"}
_ENTRIES_AND_CONTAINERS: Final = _CONTAINERS | _ENTRIES
_NAMESPACES: Final = {
    prefix.encode(): uri.encode() for uri, prefix in _FeedParserMixin.namespaces.items() if prefix
}


@dataclass(frozen=True, slots=True)
class WellFormed:
    """A document that was made well-formed, and what is known of its end."""

    document: bytes  #: empty if there is no feed in it
    is_cut_in_entry: bool  #: the published document ended inside its last entry
    is_complete: bool  #: the root had an end tag, or in RSS the channel, which contains the entries


@dataclass(slots=True)
class _Element:
    """An element whose end tag has not been found yet."""

    name: bytes
    key: bytes  #: the published name in lower case
    piece: int  #: the index of the start tag in the pieces
    is_entry: bool
    is_container: bool  #: the root or the channel
    #: The index of the piece before which it ends, if it has no end tag.
    ends_before: int | None = None


def well_formed(body: bytes, entities: dict[str, str]) -> WellFormed:
    """Return a document in UTF-8 as well-formed XML that begins with its root.

    `entities` are the names and texts of the entities that its DOCTYPE declares.
    """
    repair = _Repair(entities)
    for token in _TOKEN.finditer(_NO_CHARACTER.sub(b"", body.translate(None, _CONTROLS))):
        if token.lastgroup == "rest":
            repair.add_tag(token["name"], token["rest"], is_end=bool(token["end"]))
        elif token.lastgroup == "text" and repair.stack:
            repair.pieces.append(repair.escape(token[0]))
        elif token.lastgroup == "quoted" and repair.stack:
            repair.pieces.append(_without_markup(token["quoted"].replace(b"&", b"&amp;")))
    return repair.finish()


class _Repair:
    """The pieces of the document that is being repaired."""

    def __init__(self, entities: dict[str, str]) -> None:
        values = {name: _entity_value(name, text) for name, text in entities.items()}
        self.entities = {name: value for name, value in values.items() if value is not None}
        self.pieces: list[bytes] = []
        self.stack: list[_Element] = []
        self.entries: list[int] = []  #: the indexes of the entries in the stack
        self.opened: dict[bytes, list[int]] = {}  #: indexes in the stack, by the key of the element
        #: End tags to insert, by the index of the piece that follows them.
        self.ends: dict[int, list[bytes]] = {}
        self.root_attributes: dict[bytes, bytes] = {}
        self.prefixes: dict[bytes, None] = {}
        self.is_complete = False

    def add_tag(self, name: bytes, rest: bytes, *, is_end: bool) -> None:
        """Add a start tag or an end tag; `rest` is the text between its name and its `>`."""
        if self.stack:
            top = self.stack[-1]
            if top.ends_before is None and not top.is_entry and not top.is_container:
                top.ends_before = len(self.pieces)
        if not is_end:
            self._add_start_tag(name, rest)
        elif self.stack:
            self._add_end_tag(name.lower())

    def escape(self, raw: bytes) -> bytes:
        """Return text, or the value of an attribute, with the special characters of XML escaped."""
        if b"&" in raw:
            raw = _AMPERSAND.sub(b"&amp;", _REFERENCES.sub(_valid_references, raw))
            raw = _NAMED.sub(self._reference, raw)
        return _without_markup(raw)

    def finish(self) -> WellFormed:
        """End all open elements and return the document."""
        if not self.stack:
            return WellFormed(b"", is_cut_in_entry=False, is_complete=False)
        is_cut = any(self.stack[place].ends_before is None for place in self.entries)
        top = self.stack[-1]
        if top.ends_before is None and not top.is_entry and not top.is_container:
            self.pieces[top.piece :] = [b""]  # half a link would be another link
            self._pop()
        while len(self.stack) > 1:
            self._close_innermost()
        root = self.stack[0]
        declared = {
            b"xmlns:" + prefix: _NAMESPACES.get(prefix.lower(), prefix) for prefix in self.prefixes
        }
        self.pieces[0] = self._doctype() + _start_tag(root.name, declared | self.root_attributes)
        for place, ends in self.ends.items():
            self.pieces[place] = b"".join((*ends, self.pieces[place]))
        self.pieces.append(b"</%b>" % root.name)
        return WellFormed(
            b"".join(self.pieces), is_cut_in_entry=is_cut, is_complete=self.is_complete
        )

    def _doctype(self) -> bytes:
        declared = "".join(f'<!ENTITY {name} "{text}">' for name, text in self.entities.items())
        return f"<!DOCTYPE feed [{declared}]>".encode() if declared else b""

    def _add_start_tag(self, name: bytes, rest: bytes) -> None:
        key = name.lower()
        local = key.rpartition(b":")[2]
        if not self.stack and local not in FEED_ROOTS:
            return
        is_entry = local in _ENTRIES
        if is_entry and self.entries:
            outer = self.stack[self.entries[-1]]
            if outer.ends_before is None:
                outer.ends_before = len(self.pieces)
        name = self._valid_name(name)
        attributes = self._attributes(rest)
        is_empty = rest.endswith(b"/")
        if not self.stack:
            self.root_attributes = attributes
            self.is_complete = is_empty
        elif is_empty:
            self.pieces.append(_start_tag(name, attributes, b"/>"))
            return
        place = len(self.stack)
        is_container = local in _CONTAINERS and not self.entries
        self.stack.append(_Element(name, key, len(self.pieces), is_entry, is_container))
        self.opened.setdefault(key, []).append(place)
        if is_entry:
            self.entries.append(place)
        self.pieces.append(_start_tag(name, attributes))

    def _add_end_tag(self, key: bytes) -> None:
        places = self.opened.get(key)
        innermost = self.entries[-1] if self.entries else 0
        if not places or (
            places[-1] < innermost and key.rpartition(b":")[2] not in _ENTRIES_AND_CONTAINERS
        ):
            self.pieces.append(b"")  # an element may have been noted to end before this piece
            return
        while len(self.stack) > places[-1] + 1:
            self._close_innermost()
        if places[-1] == 0:
            self.is_complete = True
            self.pieces.append(b"")  # more may follow, so the root ends with the document
            return
        element = self._pop()
        self.pieces.append(b"</%b>" % element.name)
        is_rss = self.stack[0].key.endswith(b"rss")
        self.is_complete = self.is_complete or (is_rss and element.is_container)
        if self.entries:
            outer = self.stack[self.entries[-1]]
            if outer.ends_before is not None and outer.ends_before > element.piece:
                outer.ends_before = None  # that piece is inside the element that ends here

    def _close_innermost(self) -> None:
        """End the innermost open element, which has no end tag."""
        element = self._pop()
        end = b"</%b>" % element.name
        if element.ends_before is None:
            self.pieces.append(end)
        else:
            self.ends.setdefault(element.ends_before, []).append(end)

    def _pop(self) -> _Element:
        element = self.stack.pop()
        self.opened[element.key].pop()
        if element.is_entry:
            self.entries.pop()
        return element

    def _valid_name(self, name: bytes) -> bytes:
        """Return the name of an element, or `_` if the name is not valid in XML."""
        match = _NAME.fullmatch(name)
        if match is None or match[1] == b"xmlns":
            return b"_"
        self._declare_prefix(match[1])
        return name

    def _attributes(self, rest: bytes) -> dict[bytes, bytes]:
        """Return the attributes with valid names, each of them once and with its value repaired."""
        attributes: dict[bytes, bytes] = {}
        qualified: set[bytes] = set()  # local names, because two prefixes may be of one namespace
        for name, *values in _ATTRIBUTE.findall(rest):
            value = self.escape(b"".join(values)).replace(b'"', b"&quot;")
            match = _NAME.fullmatch(name)
            if match is None or name in attributes:
                continue
            prefix, local = match.groups()
            if b"xmlns" in (prefix, name):
                value = b"".join(value.split())
                if not _is_declarable(prefix and local, value):
                    continue
            elif prefix:
                if local in qualified:
                    continue
                qualified.add(local)
                self._declare_prefix(prefix)
            attributes[name] = value
        return attributes

    def _declare_prefix(self, prefix: bytes | None) -> None:
        if prefix and prefix != b"xml":
            self.prefixes[prefix] = None

    def _reference(self, match: re.Match[bytes]) -> bytes:
        name = match[1].decode()
        if name in self.entities:
            return match[0]
        if text := html5.get(f"{name};"):
            return b"".join(b"&#%d;" % ord(character) for character in text)
        return b"&amp;" + match[0][1:]


def _start_tag(name: bytes, attributes: dict[bytes, bytes], end: bytes = b">") -> bytes:
    if not attributes:
        return b"<" + name + end
    written = b"".join(b' %b="%b"' % attribute for attribute in attributes.items())
    return b"<%b%b%b" % (name, written, end)


def _without_markup(text: bytes) -> bytes:
    """Return text with `<` escaped, and `]]>` as well, which XML does not allow in text."""
    text = text.replace(b"<", b"&lt;").replace(b"]>", b"]&gt;")
    return b"&gt;" + text[1:] if text.startswith(b">") else text


def _valid_references(run: re.Match[bytes]) -> bytes:
    """Return references to characters that XML allows; a surrogate pair becomes one character."""
    codes = (int(hexa, 16) if hexa else int(digits) for hexa, digits in _REFERENCE.findall(run[0]))
    with_surrogates = "".join(chr(code) if code <= 0x10FFFF else _REPLACEMENT for code in codes)
    characters = with_surrogates.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = (
        char if (char >= " " or char in "\t\n\r") and char not in "\ufffe\uffff" else _REPLACEMENT
        for char in characters
    )
    return b"".join(b"&#%d;" % ord(char) for char in text)


def _is_declarable(prefix: bytes | None, uri: bytes) -> bool:
    """Return True if XML allows this declaration of a namespace."""
    if b"&#" in uri or uri.startswith((b"http://www.w3.org/XML/", b"http://www.w3.org/2000/xmlns")):
        return False
    return prefix is None or (bool(uri) and prefix not in (b"xml", b"xmlns"))


def _entity_value(name: str, text: str) -> str | None:
    """Return the value of an entity that a DOCTYPE declares; None if it is not plain text."""
    if text.startswith("&"):
        text = _REFERENCES.sub(_valid_references, text.encode()).decode()
    is_text = re.fullmatch(r"[^%<>&]*|&#[0-9]+;", text) and text not in ("&#38;", "&#60;")
    is_named = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and name not in _PREDEFINED
    return text if is_text and is_named and text.isprintable() else None
