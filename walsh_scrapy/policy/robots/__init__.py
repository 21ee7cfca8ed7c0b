"""robots.txt by R2 and RFC 9309: which URLs may be fetched, how fast, and when.

    body -> records -> groups -> rules -> verdict

Modules, with their clauses of RFC 9309:

| module         | clause       | what it does                                              |
|----------------|--------------|-----------------------------------------------------------|
| `robotstxt`    | 2.2, 2.2.2   | `RobotsTxt`, the `Rules` of one bot, their `Verdict`      |
| `records`      | 2.2 to 2.2.1 | finds records, User-agent lines and groups in the bytes   |
| `matching`     | 2.2.2, 2.2.3 | the most specific Allow or Disallow rule                  |
| `otherrecords` | 2.2.4        | Crawl-delay, Visit-time and Request-rate                  |
| `version2`     | (none)       | Robot-version 2.x: rules in order, shell patterns         |
| `access`       | 2.3.1, 2.4   | what a response to `/robots.txt` means                    |
| `quotation`    | (none)       | the lines that are about one bot                          |
| `lint`         | 2.2          | lines that mean nothing, or not what they seem            |
| `secondreader` | (none)       | how Protego reads a file, and where that can be compared  |
"""

from walsh_scrapy.policy.robots.robotstxt import RobotsTxt, Rules, Verdict

__all__ = ["RobotsTxt", "Rules", "Verdict"]
