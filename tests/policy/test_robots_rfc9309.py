"""R2 and RFC 9309 2.2.2, 2.2.3, 5: which rule decides on a URL, and how a verdict names it."""

import pytest

from walsh_scrapy.policy.robots import RobotsTxt


def rules_of(*lines):
    return RobotsTxt.parse("\n".join(["User-agent: *", *lines]).encode()).rules_for("any")


def allowed(url, *lines):
    return rules_of(*lines).verdict(url).allowed


def matches(path, url):
    """Return True if a rule matches; Allow and Disallow have to agree."""
    denied = not allowed(url, f"Disallow: {path}")
    assert allowed(url, "Disallow: /", f"Allow: {path}") == denied
    return denied


@pytest.mark.parametrize(
    ("lines", "url", "expected"),
    [
        (["Disallow: /x/page.html", "Allow: /x/"], "/x/page.html", False),
        (["Allow: /x/page.html", "Disallow: /x/"], "/x/page.html", True),
        (["Disallow: /folder", "Allow: /folder"], "/folder/page", True),
        (["Allow: /folder", "Disallow: /folder"], "/folder/page", True),
        (["Allow: /page", "Disallow: /*.htm"], "/page.htm", False),
        (["Allow: /$", "Disallow: /"], "/", True),
        (["Allow: /$", "Disallow: /"], "/page", False),
        (["Disallow: /$", "Allow: /"], "/", False),
        (["Disallow: /*", "Allow: *"], "/x", False),
        (["Disallow: /", "Allow: *"], "/x", True),
        (["Disallow: /a*", "Allow: /a$"], "/a", True),
        (["Disallow: /*?", "Allow: /abc"], "/abc?x", True),
        (["Disallow: /*?", "Allow: /ab"], "/abc?x", True),
        (["Disallow: /*?x", "Allow: /ab"], "/abc?x", False),
        (["Disallow: /é", "Allow: /*12"], "/é12", False),
        (["Disallow:"], "/x", True),
        (["Disallow:", "Disallow: /x"], "/x", False),
        (["Allow:", "Disallow: /"], "/x", False),
        ([], "/x", True),
    ],
)
def test_the_most_octets_win_and_allow_wins_ties(lines, url, expected):
    assert allowed(url, *lines) is expected


@pytest.mark.parametrize(
    ("path", "url", "expected"),
    [
        ("/fish", "/fish", True),
        ("/fish", "/fishheads/yummy.html?id=1", True),
        ("/fish", "/Fish", False),
        ("/fish", "/catfish", False),
        ("/fish/", "/fish", False),
        ("/fish*", "/fish.html", True),
        ("/fish*$", "/fish.html", True),
        ("/*.php", "/a/b.php?c", True),
        ("/*.php", "/windows.PHP", False),
        ("/a.c", "/abc", False),
        ("/*.php$", "/a.php", True),
        ("/*.php$", "/a.php?b", False),
        ("/*.php$", "/a.php.php", True),
        ("/f*.php", "/f/a.php", True),
        ("/a*b*c", "/a-c-b", False),
        ("/a*b*c", "/a-b-c", True),
        ("/a**b", "/a-b", True),
        ("/ab*ba", "/aba", False),
        ("/ab*ba$", "/abba", True),
        ("*/x", "/a/x", True),
        ("x", "/x", False),
        ("https://h/x", "/x", False),
        ("/a$b", "/a$b", True),
        ("/a$b", "/a", False),
        ("/a$", "/a$", False),
        ("/a$$", "/a$", True),
        ("/a b", "/a%20b", True),
        ("/x?", "/x?y", True),
        ("/x?", "/x", False),
        ("/x?", "/x%3Fy", False),
        ("/", "/", True),
    ],
)
def test_a_path_matches_from_its_first_octet_with_wildcards(path, url, expected):
    assert matches(path, url) is expected


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar?baz=https%3a%2f%2ffoo.bar", "/foo/bar?baz=https://foo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/ツ"),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/baz", "/foo/bar/%62%61%7a"),
    ],
)
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


@pytest.mark.parametrize(
    ("path", "url", "expected"),
    [
        ("/a%2Fb", "/a/b", False),
        ("/a/b", "/a%2Fb", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/q?a%2Fb", "/q?a/b", True),
        ("/*%2Fb", "/q?a/b", True),
        ("/*%2Fb", "/q?a%2Fb", True),
        ("/*/b", "/q?a%2Fb", True),
        ("/*%2Fb", "/q/b", False),
        ("/100%", "/100%25", True),
        ("/%2", "/%20", True),
        ("/a:b", "/a%3Ab", True),
        ("/%2541", "/A", False),
    ],
)
def test_a_delimiter_equals_its_escape_only_in_the_query(path, url, expected):
    assert (not allowed(url, f"Disallow: {path}")) is expected


def test_an_allow_without_a_question_mark_matches_a_query_only_as_written():
    assert not allowed("/q?a%2Fb", "Disallow: /", "Allow: /*/b")
    assert allowed("/q?a/b", "Disallow: /", "Allow: /*/b")
    assert allowed("/q?a%2Fb", "Disallow: /", "Allow: /*?a/b")


def test_an_allow_with_an_incomplete_escape_allows_no_more_than_it_says():
    for path in ("/100%", "/100%2", "/100%*"):
        assert not allowed("/100%20", "Disallow: /", f"Allow: {path}")


@pytest.mark.parametrize(
    "url",
    ["/x?a#b", "http://h/x?a", "HTTPS://u:p@h:8443/x?a#/y", "http://[bad/x?a", "x?a"],
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
def test_keys_with_further_letters_count(key):
    rules = RobotsTxt.parse(f"User-agents: *\n{key}: /a\nAllowed: /a/b\n".encode()).rules_for("x")
    assert not rules.verdict("/a/c").allowed
    assert rules.verdict("/a/b").allowed


@pytest.mark.parametrize("key", ["Disallow-all", "Noindex", "No-disallow", "Disallow2"])
def test_other_keys_do_not_count(key):
    rules = RobotsTxt.parse(f"User-agent: *\n{key}: /a\n".encode()).rules_for("x")
    assert rules.verdict("/a").allowed
