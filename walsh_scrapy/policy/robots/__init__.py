"""robots.txt by R2 and RFC 9309: which URLs may be fetched, how fast, and when.

    body -> records -> groups -> rules -> verdict

Modules, with their clauses of RFC 9309:

| module            | clause       | what it does                                       |
|-------------------|--------------|----------------------------------------------------|
| `robotstxt`       | 2.2          | `RobotsTxt`: a file, and the rules for a bot in it |
| `records`         | 2.2, 2.5     | finds the records in the bytes of a file           |
| `groups`          | 2.2.1        | User-agent lines, groups and product tokens        |
| `rules`           | 2.2.2        | `Rules` of one bot, and their `Verdict` on a URL   |
| `matching`        | 2.2.2, 2.2.3 | the most specific Allow or Disallow rule           |
| `percentencoding` | 2.2.2, 2.2.3 | one form for the paths of rules and URLs           |
| `otherrecords`    | 2.2.4        | Crawl-delay, Visit-time and Request-rate           |
| `version2`        | (none)       | Robot-version 2.x: rules in order, shell patterns  |
| `access`          | 2.3.1, 2.4   | what a response to `/robots.txt` means             |
| `usage`           | (none)       | Content-Signal and its like, which change nothing  |
| `quotation`       | (none)       | the lines that are about one bot                   |
| `lint`            | 2.2          | lines that mean nothing, or not what they seem     |
"""

from walsh_scrapy.policy.robots.robotstxt import RobotsTxt
from walsh_scrapy.policy.robots.rules import Rules, Verdict

__all__ = ["RobotsTxt", "Rules", "Verdict"]
