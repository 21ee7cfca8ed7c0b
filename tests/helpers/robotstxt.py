"""What must hold for each robots.txt, whatever its bytes are."""

from datetime import UTC, datetime

from tests.helpers.bounds import assert_bounded
from walsh_scrapy.policy.robots import RobotsTxt

TOKEN = "Walsh-Research"
AT = datetime(2026, 11, 21, 3, 8, 56, tzinfo=UTC)
PATHS = ("/", "/robots.txt", "/a/b.xml?c=d/e", "/caf%C3%A9/%2F%7e", "/index.php?id=1&x=%zz")


def check_robots(body: bytes) -> None:
    """Any bytes are a robots.txt; all of its answers make sense."""
    file = RobotsTxt.parse(body)
    for token in (TOKEN, "Other"):
        rules = file.rules_for(token)
        for path in PATHS:
            verdict = rules.verdict(f"https://blog.example{path}")
            assert (verdict.line is None) == (verdict.rule is None)
            assert verdict.allowed or verdict.rule or verdict.undecided
        opens = rules.opens(AT)
        assert opens >= AT
        assert rules.opens(opens) == opens
        assert rules.interval(AT) is None or rules.interval(AT) > 0
        assert rules.crawl_delay is None or 0 <= rules.crawl_delay < float("inf")
        assert_bounded((rules.comments, rules.warnings), body, 20)
