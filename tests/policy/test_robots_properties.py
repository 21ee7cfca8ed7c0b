"""R2, for every file and URL: no exception, and nothing allowed that RFC 9309 denies.

The oracle below follows the RFC's text octet by octet, and uses none of the project's code.
"""

import re
from datetime import UTC, datetime

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fuzz import documents
from walsh_scrapy.policy.robots import RobotsTxt

US = "Walsh-Research"
UNRESERVED = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
DELIMITERS = (ord("/"), ord("?"))


def octets(text):
    """Split into (octet, escaped); an escape of an unreserved character is that character."""
    for piece in re.findall(rb"%[0-9A-Fa-f]{2}|.", text, re.DOTALL):
        octet = int(piece[1:], 16) if len(piece) == 3 else piece[0]
        yield octet, len(piece) == 3 and octet not in UNRESERVED


def url_octets(url):
    """Split into (octet, escaped, in_query); in a query delimiters are data (RFC 9309 2.2.2)."""
    in_query = False
    for octet, escaped in octets(url.partition(b"#")[0]):
        yield octet, escaped, in_query
        in_query = in_query or (octet == ord("?") and not escaped)


def rule_octets(path):
    """Split the path of a rule in the same way; "*" and a final "$" stay strings."""
    anchored = path.endswith(b"$")
    in_query = False
    for octet, escaped in octets(path[:-1] if anchored else path):
        if octet == ord("*") and not escaped:
            yield "*"
            continue
        yield octet, escaped, in_query
        in_query = in_query or (octet == ord("?") and not escaped)
    if anchored:
        yield "$"


def same(rule, octet, allow):
    """Compare octets; a Disallow that may be about the query counts as being about it."""
    if rule[0] != octet[0]:
        return False
    if rule[0] == ord("%") and rule[1] != octet[1]:
        return False  # a stray "%" is not "%25"
    data = octet[2] and (rule[2] or not allow)
    return rule[0] not in DELIMITERS or data or rule[1] == octet[1]


def rule_matches(rule, url, allow):
    """Match a rule part by part, for all possible offsets in the URL at once."""
    places = {0}
    for part in rule:
        if part == "*":
            places = set(range(min(places, default=len(url) + 1), len(url) + 1))
        elif part == "$":
            places &= {len(url)}
        else:
            places = {at + 1 for at in places if at < len(url) and same(part, url[at], allow)}
    return bool(places)


def specificity(path):
    """Return the number of octets that are compared; one beyond ASCII counts as its escape."""
    return sum(3 if escaped or octet > 127 else 1 for octet, escaped in octets(path))


def oracle(rules, url, *, literally=False):
    """Return a verdict; `literally`, no Disallow takes a delimiter and its escape as equal."""
    data = list(url_octets(url))
    strict = [(octet, escaped, False) for octet, escaped, _ in data] if literally else data
    matching = [
        (specificity(path), allow)
        for allow, path in rules
        if path and rule_matches(list(rule_octets(path)), data if allow else strict, allow)
    ]
    return max(matching, default=(0, True))[1]


def robots_of(rules):
    lines = [(b"Allow: " if allow else b"Disallow: ") + path for allow, path in rules]
    return b"\n".join([b"User-agent: *", *lines])


def verdict(body, url):
    return RobotsTxt.parse(body).rules_for(US).verdict(url)


CHARACTERS = "/ab.*$?=:&é"
ESCAPES = ["%2F", "%2f", "%3F", "%61", "%3A", "%2A", "%24", "%C3%A9", "%E9", "%25", "%zz"]
pieces = st.sampled_from([*CHARACTERS, *ESCAPES])
paths = st.lists(pieces | st.just("\udce9"), max_size=9).map("".join)
rule_paths = (paths | paths.map("/".__add__)).map(
    lambda path: path.encode("utf-8", "surrogateescape")
)
url_paths = st.lists(pieces, max_size=12).map(lambda pieces: "/" + "".join(pieces))
rule_lists = st.lists(st.tuples(st.booleans(), rule_paths), max_size=6)


def mixed(path):
    """Match a rule, possibly about the query, that escapes one delimiter and not another."""
    behind_star = path.partition(b"?")[0].partition(b"*")[2]
    return re.search(rb"%[23][fF]", behind_star) and b"/" in behind_star


@given(rule_lists, url_paths)
def test_verdicts_agree_with_the_oracle(rules, url):
    assume(url != "/robots.txt")
    assume(not any(mixed(path) for _, path in rules))
    assert verdict(robots_of(rules), url).allowed == oracle(rules, url.encode())


@given(rule_lists, url_paths)
def test_a_mixed_rule_never_allows_more_than_it_says(rules, url):
    assume(url != "/robots.txt")
    if verdict(robots_of(rules), url).allowed:
        assert oracle(rules, url.encode(), literally=True)


half_paths = st.lists(
    st.sampled_from(["/", "a", "*", "$", "%2F", "%20", "%C3", "%", "%2", "%C"]), max_size=6
).map(lambda pieces: ("/" + "".join(pieces)).encode())


def plainly_matches(path, url):
    """Match octets as they are, without decoding escapes."""
    pattern = b".*".join(map(re.escape, path.removesuffix(b"$").split(b"*")))
    return re.match(pattern + (rb"\Z" if path.endswith(b"$") else b""), url, re.DOTALL)


@given(half_paths, st.lists(st.sampled_from(["/", "a", "%2F", "%20", "%C3"]), max_size=6))
def test_an_incomplete_escape_denies_all_that_begin_with_it_and_allows_no_more(path, pieces):
    url = "/" + "".join(pieces)
    if plainly_matches(path, url.encode()):
        assert not verdict(robots_of([(False, path)]), url).allowed
    if len(path) > 1 and verdict(robots_of([(False, b"/"), (True, path)]), url).allowed:
        assert plainly_matches(path, url.encode())


@given(rule_lists, url_paths)
def test_the_named_rule_is_one_with_that_verdict(rules, url):
    answer = verdict(robots_of(rules), url)
    if answer.line is None:
        assert answer.rule is None
        assert answer.allowed
        return
    allow, path = rules[answer.line - 2]
    assert allow == answer.allowed
    assert answer.rule.startswith("Allow: " if allow else "Disallow: ")
    assert path.decode("utf-8", "replace") in answer.rule


KEYS = (
    *("User-agent", "Allow", "Disallow", "Crawl-delay", "Visit-time", "Request-rate", "Comment"),
    *("Robot-version", "Sitemap", "useragent", "dissallow", "Noindex"),
)
values = st.one_of(
    st.sampled_from(
        [*US.split("-"), US, "*", "2.0", "0600-0845", "1/10m 1300-1659", "5/1m", "10", "[a-c]?*"]
    ),
    paths,
    st.text(max_size=8),
)
records = st.builds(
    lambda key, blank, separator, value: f"{blank}{key}{separator}{value}",
    st.sampled_from(KEYS),
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from([":", ": ", " ", " : "]),
    values,
).map(lambda record: record.encode("utf-8", "surrogatepass"))
lines = st.lists(records | st.binary(max_size=12), max_size=12).map(
    lambda lines: [re.sub(rb"[\r\n]", b"", line) for line in lines]
)
tokens = st.sampled_from([US, "Walsh", "other", ""]) | st.text(max_size=12)
moments = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


def everything(body, token, urls, at):
    """Return all answers about a file; without line numbers, which some tests change."""
    robots = RobotsTxt.parse(body)
    rules = robots.rules_for(token)
    return (
        robots.sitemaps,
        rules.group,
        rules.crawl_delay,
        rules.comments,
        rules.interval(at),
        rules.opens(at),
        [sentence for _, sentence in rules.warnings],
        [(answer.allowed, answer.rule) for answer in map(rules.verdict, urls)],
    )


@given(st.binary(max_size=400) | lines.map(b"\n".join), tokens, st.text(max_size=30), moments)
def test_nothing_raises(body, token, url, at):
    everything(body, token, [url, f"/{url}", f"http://{url}", f"http://h/{url}"], at)
    documents.robots(body)
    rules = RobotsTxt.parse(body).rules_for(token)
    assert list(rules.lines) == sorted(set(rules.lines))
    assert rules.verdict(url).line is None or rules.verdict(url).line > 0


@given(lines, st.sampled_from([b"\r", b"\r\n"]), url_paths, moments)
def test_line_endings_and_a_byte_order_mark_change_nothing(lines, ending, url, at):
    plain = everything(b"\n".join([b"", *lines]), US, [url], at)
    assert everything(ending.join([b"", *lines]), US, [url], at) == plain
    assert everything(b"\xef\xbb\xbf" + b"\n".join([b"", *lines]), US, [url], at) == plain


@given(lines, st.integers(0, 12), st.binary(max_size=20), url_paths, moments)
def test_a_comment_changes_nothing(lines, place, comment, url, at):
    comment = b"#" + re.sub(rb"[\r\n]", b"", comment)
    plain = everything(b"\n".join([b"", *lines]), US, [url], at)
    own_line = [b"", *lines[:place], comment, *lines[place:]]
    assert everything(b"\n".join(own_line), US, [url], at) == plain
    behind = [line + comment if at_place == place else line for at_place, line in enumerate(lines)]
    assert everything(b"\n".join([b"", *behind]), US, [url], at) == plain


@given(rule_lists, url_paths)
def test_version_2_is_never_more_permissive_than_the_rfc(rules, url):
    newer = robots_of(rules).replace(b"User-agent: *", b"User-agent: *\nRobot-version: 2.0")
    assert verdict(newer, url).allowed <= verdict(robots_of(rules), url).allowed
