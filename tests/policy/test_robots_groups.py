"""R2, RFC 9309 2.2, 2.2.1: records and groups, and which groups are ours (decisions 8, 9, 11)."""

import pytest

from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.robotstxt import token_of
from walsh_scrapy.testing.conformance.scenario import token_of as token_of_witness

US = "Walsh-Research"


def rules_of(text, token=US):
    body = text if isinstance(text, bytes) else text.encode()
    return RobotsTxt.parse(body).rules_for(token)


def allowed(text, url="/x", token=US):
    return rules_of(text, token).verdict(url).allowed


@pytest.mark.parametrize(
    "value",
    [
        "Walsh-Research",
        "walsh-research",
        "WALSH-RESEARCH",
        "Walsh",
        "Walsh-",
        "Walsh-Research/1.0",
        "Walsh-Research Extra",
        "Walsh-Research, Otherbot",
        "Walsh-Research*",
        "Walsh/2",
        "Walsh-Research # that is us",
        "\tWalsh-Research\t",
    ],
)
def test_values_that_match_our_token(value):
    assert not allowed(f"User-agent: {value}\nDisallow: /\n")


@pytest.mark.parametrize(
    "value",
    [
        "W",
        "Wals",
        "Research",
        "Walsh-R",
        "Walsh-Research-Extra",
        "Walsh-Researcher",
        "Walsh_Research",
        "Mozilla/5.0 (compatible; Walsh-Research/1.0)",
        "Otherbot, Walsh-Research",
        "*bot",
        "/Walsh-Research",
        "",
    ],
)
def test_values_that_do_not_match_our_token(value):
    assert allowed(f"User-agent: {value}\nDisallow: /\n")


@pytest.mark.parametrize(("value", "ours"), [("*", True), ("* all", True), ("**", False)])
def test_a_star_has_to_stand_alone(value, ours):
    assert rules_of(f"User-agent: {value}\nDisallow: /").group == ("*" if ours else None)


def test_a_named_group_overrides_the_star_in_both_directions():
    assert allowed("User-agent: *\nDisallow: /\n\nUser-agent: Walsh-Research\nDisallow:\n")
    assert not allowed("User-agent: *\nAllow: /\n\nUser-agent: Walsh-Research\nDisallow: /\n")


def test_the_longest_name_counts_in_any_order():
    for lines in (["Walsh", "Walsh-Research", "*"], ["*", "Walsh-Research", "Walsh"]):
        text = "".join(f"User-agent: {line}\nDisallow: /{line}\n" for line in lines)
        rules = rules_of(text)
        assert rules.group == "walsh-research"
        assert not rules.verdict("/Walsh-Research").allowed
        assert rules.verdict("/Walsh/").allowed


def test_groups_of_one_name_are_merged():
    text = (
        "User-agent: walsh-research\nDisallow: /a\nCrawl-delay: 3\n"
        "User-agent: *\nDisallow: /\n"
        "User-agent: Walsh-Research/2\nDisallow: /b\nCrawl-delay: 1\n"
    )
    rules = rules_of(text)
    assert [rules.verdict(url).allowed for url in ("/a", "/b", "/c")] == [False, False, True]
    assert rules.crawl_delay == 3
    assert rules.lines == (1, 6)


def test_star_groups_are_merged_too():
    text = (
        "User-agent: *\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: *\nDisallow: /b"
    )
    rules = rules_of(text)
    assert (rules.group, rules.lines) == ("*", (1, 7))
    assert [rules.verdict(url).allowed for url in ("/a", "/b", "/c")] == [False, False, True]


def test_without_a_group_for_us_everything_is_allowed():
    rules = rules_of("User-agent: other\nDisallow: /\nCrawl-delay: 9\n")
    assert (rules.group, rules.lines, rules.crawl_delay) == (None, (), None)
    assert rules.verdict("/x").allowed


def test_rules_before_any_user_agent_are_in_no_group():
    # RFC 9309 2.2.2 has them ignored; some other parsers add them to "*".
    assert allowed("Disallow: /\nUser-agent: *\nDisallow: /y\n")


def test_an_empty_user_agent_line_ends_the_group_before_it():
    assert allowed("User-agent: *\nDisallow: /y\nUser-agent:\nDisallow: /\n")


def test_stacked_user_agents_share_the_records_that_follow():
    text = "User-agent: a\nUser-agent: Walsh-Research\n\n# all\nUser-agent: b\nDisallow: /x\n"
    for token in ("a", US, "b"):
        assert not allowed(text, token=token)


@pytest.mark.parametrize(
    "between",
    [
        "Crawl-delay: 5",
        "Crawl-delay: nonsense",
        "Sitemap: https://example.com/s.xml",
        "Visit-time: 0600-0845",
        "Comment: hello",
        "Noindex: /y",
        "no record at all",
    ],
)
def test_only_allow_and_disallow_end_a_stack_for_allow_and_disallow(between):
    assert not allowed(f"User-agent: Walsh-Research\n{between}\nUser-agent: b\nDisallow: /x\n")


@pytest.mark.parametrize("rule", ["Disallow:", "Allow: /z", "disallaw /z"])
def test_an_allow_or_disallow_ends_a_stack(rule):
    assert allowed(f"User-agent: Walsh-Research\n{rule}\nUser-agent: b\nDisallow: /x\n")


def test_other_records_end_a_stack_for_each_other():
    text = "User-agent: Walsh-Research\nCrawl-delay: 2\nUser-agent: *\nCrawl-delay: 10\n"
    assert rules_of(text).crawl_delay == 2
    assert rules_of(text, "other").crawl_delay == 10
    text = "User-agent: Walsh-Research\nComment: x\nUser-agent: *\nCrawl-delay: 10\nDisallow: /x"
    assert rules_of(text).crawl_delay is None
    assert not allowed(text)


def test_unknown_records_and_sitemaps_end_nothing():
    text = "User-agent: Walsh-Research\nHost: h\nSitemap: /s\nUser-agent: *\nCrawl-delay: 10\n"
    assert rules_of(text).crawl_delay == 10


def test_allow_and_disallow_end_a_stack_for_the_others():
    text = "User-agent: Walsh-Research\nDisallow: /y\nUser-agent: *\nCrawl-delay: 10\n"
    assert rules_of(text).crawl_delay is None


@pytest.mark.parametrize(
    ("token", "group"),
    [("Foo", "foo"), ("Foo/1.0", "foo"), ("foo2", "foo"), ("Foo Bar", "*"), ("", "*"), ("ﬀ", "*")],
)
def test_a_token_is_cut_like_the_values(token, group):
    assert rules_of("User-agent: foo2\nDisallow: /\nUser-agent: *\nDisallow:", token).group == group


@pytest.mark.parametrize(
    "key", ["disallow", "DISALLOW", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"]
)
@pytest.mark.parametrize("separator", [":", ": ", " : ", "\t:\t", " ", "\t"])
def test_misspelled_rules_count(key, separator):
    assert not allowed(f"User-agent: *\n {key}{separator}/x\t\n")


@pytest.mark.parametrize("line", ["useragent: ", "user agent: ", "User Agent ", "USER-AGENT "])
def test_misspelled_user_agent_lines_count(line):
    assert not allowed(f"{line}Walsh-Research\nDisallow: /\n")


def test_a_missing_colon_is_accepted_before_a_single_word_only():
    assert allowed("User-agent: *\nDisallow everything here\nDisallow\n", "/everything")
    assert not allowed("User-agent: *\nDisallow /x # this\n")


def test_sitemaps_belong_to_no_group():
    text = "Sitemap: https://h/a\nUser-agent: b\nsite-map: /b\nsitemaps /c\nSitemap:\nsitemap: /é#x"
    assert RobotsTxt.parse(text.encode()).sitemaps == ("https://h/a", "/b", "/c", "/é")


@pytest.mark.parametrize("bom", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_is_not_part_of_the_first_line(bom):
    assert not allowed(bom + b"User-agent: *\nDisallow: /")


def test_a_byte_order_mark_further_down_is_part_of_its_line():
    assert allowed(b"User-agent: *\n\xef\xbb\xbfDisallow: /")


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
def test_lines_end_at_cr_lf_and_crlf(ending):
    rules = rules_of(ending.join([b"", b"User-agent: *", b"", b"Disallow: /x", b"Allow: /x/y"]))
    assert (rules.verdict("/x").line, rules.verdict("/x/y").line) == (4, 5)


@pytest.mark.parametrize("other", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x00"])
def test_nothing_else_ends_a_line(other):
    assert allowed(f"User-agent: *\nDisallow: /y{other}Disallow: /x\n")


def test_octets_that_are_not_utf_8_stay_as_they_are():
    latin = b"User-agent: *\nDisallow: /\nAllow: /caf\xe9\n"
    assert allowed(latin, "/caf%E9")
    assert not allowed(latin, "/caf\u00e9")
    assert not allowed(latin, "/caf")
    assert not allowed(latin, "/caf\ufffd")


def test_at_most_500_kib_are_read_and_an_incomplete_last_line_is_dropped():
    head = b"User-agent: *\nDisallow: /"
    filler = b"\n#" + b"x" * (512_000 - len(head) - 2 - len(b"\nAllow: /private"))
    assert not allowed(head + filler + b"\nAllow: /private/one\n", "/private")
    assert allowed(head + filler + b"\nAllow: /private\n", "/private")
    assert not allowed(head + filler + b"\n\nAllow: /private\n", "/private")
    assert RobotsTxt.parse(b"Disallow: /" + b"x" * 600_000).rules_for(US).verdict("/x").allowed


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)", "Example-Bot"),
        ("Mozilla/5.0 AppleWebKit/537.36 (KHTML; compatible; GPT_Bot; +x)", "GPT_Bot"),
        ("theirs (+https://www.their.example)", "theirs"),
        ("theirs2/1.0", "theirs"),
        ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", None),
        ("(nobody)", None),
        ("", None),
    ],
)
def test_a_token(user_agent, token):
    assert token_of(user_agent) == token


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
