"""robots.txt (R2, RFC 9309): which URLs may be fetched, how fast, and when.

    body -> lines -> groups -> rules -> verdict

Modules, with their clauses of RFC 9309:

| module       | clause       | purpose                                                  |
|--------------|--------------|----------------------------------------------------------|
| `robotstxt`  | 2.2, 2.2.1   | groups in the bytes, the `Rules` of one bot, a `Verdict` |
| `whitespace` | 2.2          | white space that some readers strip, and others do not   |
| `matching`   | 2.2.2, 2.2.3 | the most specific Allow or Disallow rule                 |
| `extended`   | 2.2.4        | Crawl-delay, Visit-time, Request-rate, Robot-version 2.x |
| `copy`       | 2.3.1, 2.4   | the meaning of a response to `/robots.txt`, its lifetime |
| `lint`       | 2.2          | lines without a meaning, or with a surprising one        |
"""

from walsh_scrapy.policy.robots.robotstxt import RobotsTxt, Rules, Verdict

__all__ = ["RobotsTxt", "Rules", "Verdict"]
