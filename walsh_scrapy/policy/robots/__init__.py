"""robots.txt as R2 and RFC 9309 read it: which URLs may be asked for, how fast, and when."""

from walsh_scrapy.policy.robots.robotstxt import RobotsTxt, Rules, Verdict

__all__ = ["RobotsTxt", "Rules", "Verdict"]
