"""R2 and RFC 9309 2.2.2, 2.2.3, 5: which rule decides on a URL, and how a verdict names it."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.helpers import cases
from tests.helpers.robotstxt import check_robots
from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.testing.conformance.scenario import token_of as token_of_witness


def rules_of(*lines):
    return RobotsTxt.parse("\n".join(["User-agent: *", *lines]).encode()).rules_for("any")


def allowed(url, *lines):
    return rules_of(*lines).verdict(url).allowed


def matches(path, url):
    """Return True if a rule matches; Allow and Disallow have to agree."""
    denied = not allowed(url, f"Disallow: {path}")
    assert allowed(url, "Disallow: /", f"Allow: {path}") == denied
    return denied


@cases("lines", "url", "expected")
def test_the_most_octets_win_and_allow_wins_ties(lines, url, expected):
    assert allowed(url, *lines) is expected


@cases("path", "url", "expected")
def test_a_path_matches_from_its_first_octet_with_wildcards(path, url, expected):
    assert matches(path, url) is expected


@cases("path", "url")
def test_percent_encoding_as_in_figure_4(path, url):
    assert matches(path, url)


@pytest.mark.parametrize(
    ("path", "url", "expected"),
    [
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", True),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-b.html", False),
        ("/path/foo-%24", "/path/foo-$", True),
        ("/path/foo-%24", "/path/foo-", False),
        ("/*.html", "/path/file-with-a-%2A.html", True),
    ],
)
def test_special_characters_as_in_figure_6(path, url, expected):
    assert matches(path, url) is expected


@cases("path", "url", "expected")
def test_a_delimiter_equals_its_escape_only_in_the_query(path, url, expected):
    assert (not allowed(url, f"Disallow: {path}")) is expected


def test_allow_without_question_mark_matches_a_query_as_written():
    assert not allowed("/q?a%2Fb", "Disallow: /", "Allow: /*/b")
    assert allowed("/q?a/b", "Disallow: /", "Allow: /*/b")
    assert allowed("/q?a%2Fb", "Disallow: /", "Allow: /*?a/b")


def test_allow_with_incomplete_escape_allows_nothing_more():
    for path in ("/100%", "/100%2", "/100%*"):
        assert not allowed("/100%20", "Disallow: /", f"Allow: {path}")


@pytest.mark.parametrize(
    "url", ["/x?a#b", "http://h/x?a", "HTTPS://u:p@h:8443/x?a#/y", "http://[bad/x?a", "x?a"]
)
def test_full_urls_and_bare_paths(url):
    assert not allowed(url, "Disallow: /x?a$")


def test_a_bare_path_may_begin_with_two_slashes():
    assert not allowed("//x", "Disallow: //x")
    assert not allowed("http://h//x", "Disallow: //x")


@pytest.mark.parametrize("url", ["", "http://h", "http://h?q", "?q", "#f", "http://h#f"])
def test_an_empty_path_is_the_root(url):
    assert not allowed(url, "Disallow: /")


def test_the_fragment_is_never_matched():
    assert allowed("/x#/private", "Disallow: /*private")


@pytest.mark.parametrize("url", ["/robots.txt", "https://h/robots.txt#x", "http://h/%72obots.txt"])
def test_robots_txt_is_always_allowed(url):
    answer = rules_of("Disallow: /").verdict(url)
    assert (answer.allowed, answer.rule, answer.line) == (True, None, None)


@pytest.mark.parametrize("url", ["/robots.txt?x", "/a/robots.txt", "/robots.txt.bak"])
def test_similar_paths_are_not_always_allowed(url):
    assert not allowed(url, "Disallow: /")


def test_index_html_is_not_special():
    assert not allowed("/x/", "Disallow: /", "Allow: /x/index.html")


def test_a_dollar_at_the_end_does_not_match_a_dollar_too():
    assert not allowed("/a$x", "Disallow: /", "Allow: /a$")


@pytest.mark.parametrize(
    ("url", "rule", "line"),
    [
        ("/x/1", "Disallow: /x", 5),
        ("/x/y", "allow : /x/y", 3),
        ("/a.pdf", "Disallow: /*.pdf$", 6),
        ("/z", None, None),
    ],
)
def test_a_verdict_names_rule_and_line(url, rule, line):
    rules = rules_of("# rules", "  allow : /x/y # but", "", "Disallow: /x", "Disallow: /*.pdf$")
    answer = rules.verdict(url)
    assert (answer.rule, answer.line) == (rule, line)


def test_a_verdict_names_the_first_of_equal_rules():
    rules = rules_of("Disallow: /x", "Allow: /x", "Allow: /x*", "Allow: /%78")
    assert (rules.verdict("/x").rule, rules.verdict("/x").line) == ("Allow: /x*", 4)
    assert rules_of("Allow: /x", "Allow: /%78").verdict("/x").line == 2


def test_verdicts_with_the_same_answer_are_equal():
    assert rules_of("Disallow: /x").verdict("/x") == rules_of("Disallow: /").verdict("/y")


def test_rules_that_cost_too_much_deny_and_are_reported():
    hostile = rules_of(*(f"Allow: /{'*a' * 900}b{number}" for number in range(250)))
    answer = hostile.verdict("/" + "a" * 2_000)
    assert (answer.allowed, answer.undecided, answer.rule, answer.line) == (False, True, None, None)
    assert hostile.verdict("/" + "a" * 80).allowed
    assert not rules_of("Disallow: /").verdict("/x").undecided


def test_many_rules_are_matched_like_few():
    lines = [f"Disallow: /*/{number}$" for number in range(2_000)]
    rules = rules_of(*lines, *(f"Allow: /{number}/*x" for number in range(2_000)))
    assert [rules.verdict(url).allowed for url in ("/a/17", "/a/17/", "/17/17", "/17/x/17")] == [
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("key", ["Disallowed", "disallows", "Dissallowed", "DISALLOWING"])
def test_keys_with_further_letters_are_read(key):
    rules = RobotsTxt.parse(f"User-agents: *\n{key}: /a\nAllowed: /a/b\n".encode()).rules_for("x")
    assert not rules.verdict("/a/c").allowed
    assert rules.verdict("/a/b").allowed


@pytest.mark.parametrize("key", ["Disallow-all", "Noindex", "No-disallow", "Disallow2"])
def test_other_keys_are_ignored(key):
    rules = RobotsTxt.parse(f"User-agent: *\n{key}: /a\n".encode()).rules_for("x")
    assert rules.verdict("/a").allowed


# R2, RFC 9309 2.2, 2.2.1: records and groups, and which groups are ours (decisions 8, 9, 11).

US = "Walsh-Research"


def rules_for(text, token=US):
    body = text if isinstance(text, bytes) else text.encode()
    return RobotsTxt.parse(body).rules_for(token)


def allows(text, url="/x", token=US):
    return rules_for(text, token).verdict(url).allowed


@cases("value")
def test_values_that_match_our_token(value):
    assert not allows(f"User-agent: {value}\nDisallow: /\n")


@cases("value")
def test_values_that_do_not_match_our_token(value):
    assert allows(f"User-agent: {value}\nDisallow: /\n")


@pytest.mark.parametrize(("value", "ours"), [("*", True), ("* all", True), ("**", False)])
def test_a_star_has_to_stand_alone(value, ours):
    assert rules_for(f"User-agent: {value}\nDisallow: /").group == ("*" if ours else None)


def test_a_named_group_overrides_the_star_in_both_directions():
    assert allows("User-agent: *\nDisallow: /\n\nUser-agent: Walsh-Research\nDisallow:\n")
    assert not allows("User-agent: *\nAllow: /\n\nUser-agent: Walsh-Research\nDisallow: /\n")


def test_longest_name_wins_in_any_order():
    for lines in (["Walsh", "Walsh-Research", "*"], ["*", "Walsh-Research", "Walsh"]):
        text = "".join(f"User-agent: {line}\nDisallow: /{line}\n" for line in lines)
        rules = rules_for(text)
        assert rules.group == "walsh-research"
        assert not rules.verdict("/Walsh-Research").allowed
        assert rules.verdict("/Walsh/").allowed


def test_groups_of_one_name_are_merged():
    text = (
        "User-agent: walsh-research\nDisallow: /a\nCrawl-delay: 3\n"
        "User-agent: *\nDisallow: /\n"
        "User-agent: Walsh-Research/2\nDisallow: /b\nCrawl-delay: 1\n"
    )
    rules = rules_for(text)
    assert [rules.verdict(url).allowed for url in ("/a", "/b", "/c")] == [False, False, True]
    assert rules.crawl_delay == 3
    assert rules.lines == (1, 6)


def test_star_groups_are_merged_too():
    text = (
        "User-agent: *\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: *\nDisallow: /b"
    )
    rules = rules_for(text)
    assert (rules.group, rules.lines) == ("*", (1, 7))
    assert [rules.verdict(url).allowed for url in ("/a", "/b", "/c")] == [False, False, True]


def test_without_a_group_for_us_everything_is_allowed():
    rules = rules_for("User-agent: other\nDisallow: /\nCrawl-delay: 9\n")
    assert (rules.group, rules.lines, rules.crawl_delay) == (None, (), None)
    assert rules.verdict("/x").allowed


def test_rules_before_any_user_agent_are_in_no_group():
    # RFC 9309 2.2.2 has them ignored; some other parsers add them to "*".
    assert allows("Disallow: /\nUser-agent: *\nDisallow: /y\n")


def test_an_empty_user_agent_line_ends_the_group_before_it():
    assert allows("User-agent: *\nDisallow: /y\nUser-agent:\nDisallow: /\n")


def test_stacked_user_agents_share_the_records_that_follow():
    text = "User-agent: a\nUser-agent: Walsh-Research\n\n# all\nUser-agent: b\nDisallow: /x\n"
    for token in ("a", US, "b"):
        assert not allows(text, token=token)


@cases("between")
def test_only_allow_and_disallow_end_a_stack_of_user_agents(between):
    assert not allows(f"User-agent: Walsh-Research\n{between}\nUser-agent: b\nDisallow: /x\n")


@pytest.mark.parametrize("rule", ["Disallow:", "Allow: /z", "disallaw /z"])
def test_an_allow_or_disallow_ends_a_stack(rule):
    assert allows(f"User-agent: Walsh-Research\n{rule}\nUser-agent: b\nDisallow: /x\n")


def test_other_records_end_a_stack_for_each_other():
    text = "User-agent: Walsh-Research\nCrawl-delay: 2\nUser-agent: *\nCrawl-delay: 10\n"
    assert rules_for(text).crawl_delay == 2
    assert rules_for(text, "other").crawl_delay == 10
    text = "User-agent: Walsh-Research\nComment: x\nUser-agent: *\nCrawl-delay: 10\nDisallow: /x"
    assert rules_for(text).crawl_delay is None
    assert not allows(text)


def test_unknown_records_and_sitemaps_end_no_group():
    text = "User-agent: Walsh-Research\nHost: h\nSitemap: /s\nUser-agent: *\nCrawl-delay: 10\n"
    assert rules_for(text).crawl_delay == 10


def test_allow_and_disallow_end_a_stack_for_the_others():
    text = "User-agent: Walsh-Research\nDisallow: /y\nUser-agent: *\nCrawl-delay: 10\n"
    assert rules_for(text).crawl_delay is None


@pytest.mark.parametrize(
    ("token", "group"),
    [("Foo", "foo"), ("Foo/1.0", "foo"), ("foo2", "foo"), ("Foo Bar", "*"), ("", "*"), ("ﬀ", "*")],
)
def test_a_token_is_cut_like_the_values(token, group):
    assert (
        rules_for("User-agent: foo2\nDisallow: /\nUser-agent: *\nDisallow:", token).group == group
    )


@pytest.mark.parametrize(
    "key", ["disallow", "DISALLOW", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"]
)
@pytest.mark.parametrize("separator", [":", ": ", " : ", "\t:\t", " ", "\t"])
def test_misspelled_rules_are_read(key, separator):
    assert not allows(f"User-agent: *\n {key}{separator}/x\t\n")


@pytest.mark.parametrize("line", ["useragent: ", "user agent: ", "User Agent ", "USER-AGENT "])
def test_misspelled_user_agent_lines_are_read(line):
    assert not allows(f"{line}Walsh-Research\nDisallow: /\n")


def test_a_missing_colon_is_accepted_before_a_single_word_only():
    assert allows("User-agent: *\nDisallow everything here\nDisallow\n", "/everything")
    assert not allows("User-agent: *\nDisallow /x # this\n")


def test_sitemaps_belong_to_no_group():
    text = "Sitemap: https://h/a\nUser-agent: b\nsite-map: /b\nsitemaps /c\nSitemap:\nsitemap: /é#x"
    assert RobotsTxt.parse(text.encode()).sitemaps == ("https://h/a", "/b", "/c", "/é")


@pytest.mark.parametrize("bom", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_is_not_part_of_the_first_line(bom):
    assert not allows(bom + b"User-agent: *\nDisallow: /")


def test_a_byte_order_mark_further_down_is_part_of_its_line():
    assert allows(b"User-agent: *\n\xef\xbb\xbfDisallow: /")


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
def test_lines_end_at_cr_lf_and_crlf(ending):
    rules = rules_for(ending.join([b"", b"User-agent: *", b"", b"Disallow: /x", b"Allow: /x/y"]))
    assert (rules.verdict("/x").line, rules.verdict("/x/y").line) == (4, 5)


@pytest.mark.parametrize("other", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x00"])
def test_other_characters_end_no_line(other):
    assert allows(f"User-agent: *\nDisallow: /y{other}Disallow: /x\n")


def test_octets_that_are_not_utf_8_stay_as_they_are():
    latin = b"User-agent: *\nDisallow: /\nAllow: /caf\xe9\n"
    assert allows(latin, "/caf%E9")
    assert not allows(latin, "/caf\u00e9")
    assert not allows(latin, "/caf")
    assert not allows(latin, "/caf\ufffd")


def test_500_kib_are_read_and_a_partial_last_line_is_dropped():
    head = b"User-agent: *\nDisallow: /"
    filler = b"\n#" + b"x" * (512_000 - len(head) - 2 - len(b"\nAllow: /private"))
    assert not allows(head + filler + b"\nAllow: /private/one\n", "/private")
    assert allows(head + filler + b"\nAllow: /private\n", "/private")
    assert not allows(head + filler + b"\n\nAllow: /private\n", "/private")
    assert RobotsTxt.parse(b"Disallow: /" + b"x" * 600_000).rules_for(US).verdict("/x").allowed


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Mozilla/5.0 (compatible; Some-Bot/1.0; +https://bot.example/)", "Some-Bot"),
        ("Mozilla/5.0 (X11) Safari/605.1 (Applebot/0.1; +http://apple.example/)", "Applebot"),
        ("python-requests/2.32", "python-requests"),
        ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Mozilla"),
        ("-", None),
        ("", None),
    ],
)
def test_the_witness_names_anything_that_it_can(user_agent, token):
    assert token_of_witness(user_agent) == token


# R2, for every file and URL: no exception, and nothing allowed that RFC 9309 denies.
#
# The oracle below follows the RFC's text octet by octet, and uses none of the project's code.

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
def test_incomplete_escape_denies_by_prefix_and_allows_no_more(path, pieces):
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
def test_any_bytes_raise_no_exception(body, token, url, at):
    everything(body, token, [url, f"/{url}", f"http://{url}", f"http://h/{url}"], at)
    check_robots(body)
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


FILE = "User-agent: *\nDisallow: /a\u00fc\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_with_a_mark_is_decoded(encoding):
    rules = RobotsTxt.parse(("\ufeff" + FILE).encode(encoding)).rules_for("any")
    assert not rules.verdict("http://a.example/a\u00fc").allowed
    assert rules.verdict("http://a.example/b").allowed


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_hard_space_after_the_colon_is_a_space(encoding):
    body = "User-agent:\u00a0*\nDisallow:\u00a0/a\n".encode(encoding)
    assert not RobotsTxt.parse(body).rules_for("any").verdict("http://a.example/a").allowed


@pytest.mark.parametrize(
    ("body", "is_unusable"),
    [(b"<html>Hello</html>", True), (b"", False), (b"\n", False), (b"User-agent: *", False)],
)
def test_a_file_without_any_record_is_unusable(body, is_unusable):
    assert RobotsTxt.parse(body).is_unusable is is_unusable
