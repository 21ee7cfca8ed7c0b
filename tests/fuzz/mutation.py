"""Changes of a document, by chance."""

import re
from collections.abc import Sequence
from random import Random

#: Bytes of the longest document that is made.
LONGEST = 65_536

_WORDS = re.compile(rb"[A-Za-z0-9_.-]+|[^A-Za-z0-9_.\s-]+|\s+")
#: What parsers stumble over: ends of strings, numbers and encodings.
_ODD = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\xe2\x80\xa8"),
    *(b"\xe2\x80\xae", b"\xef\xbc\x91", b"\xd9\xa3", b"\xe3\x80\x82", b"\xc3\x9f", b"xn--a"),
    *(b"\r", b"\n", b"\r\n\r\n", b"\x1b[31m", b"\t", b" ", b"%00", b"%2e", b"&#0;", b"&#55357;"),
    *(b"0", b"-1", b"9" * 20, b"1e400", b"NaN", b'"', b"'", b"<", b">", b"<!--", b"]]>", b"{"),
    *(b"[", b"(", b"\\", b"\\u0000", b"\\ud800", b"/", b"//", b"..", b"*", b"$", b"#", b"@", b"?"),
)


class Mutator:
    """Makes documents from others; the words of the first ones are used throughout."""

    def __init__(self, seeds: Sequence[bytes], random: Random) -> None:
        self._random = random
        self._words = sorted({word for seed in seeds for word in _WORDS.findall(seed[:LONGEST])})

    def mutated(self, corpus: Sequence[bytes]) -> bytes:
        """Return a document of the corpus with one to eight changes."""
        random = self._random
        body = random.choice(corpus)
        for _ in range(min(8, 1 + int(random.expovariate(0.6)))):
            body = self._changed(body, corpus)
        return body[:LONGEST]

    def _changed(self, body: bytes, corpus: Sequence[bytes]) -> bytes:
        random = self._random
        start, end = self._span(body)
        before, piece, after = body[:start], body[start:end], body[end:]
        match random.randrange(8):
            case 0:
                return before + after
            case 1:
                return before + random.choice(_ODD) + after
            case 2:
                return before + random.choice(self._words or _ODD) + body[start:]
            case 3:
                return before + random.randbytes(random.randint(1, 4)) + after
            case 4:
                times = min(random.choice((2, 3, 20, 300)), LONGEST // (len(piece) or 1))
                return before + piece * times + after
            case 5:
                at, until = self._span(other := random.choice(corpus))
                return before + other[at:until] + body[random.choice((start, end)) :]
            case 6:
                at = random.randint(0, len(after))
                return before + after[:at] + piece + after[at:]
            case _:
                flipped = bytes([piece[0] ^ 1 << random.randrange(8)]) if piece else b""
                return before + flipped + piece[1:] + after

    def _span(self, body: bytes) -> tuple[int, int]:
        """Return a place and its end: mostly near, and often that of a whole word."""
        random = self._random
        start = random.randint(0, len(body))
        if random.random() < 0.4 and (word := _WORDS.search(body, start)):
            return word.span()
        length = int(random.expovariate(1 / random.choice((2, 12, 200))))
        return start, min(len(body), start + length)
