"""Mutants that break R1 to R3: identity, robots.txt and opt-outs."""

from typing import Final

from benchmarks.mutants.mutant import Mutant, Patch

_HANDLER: Final = "walsh_scrapy/downloadhandler.py"
_IDENTITY: Final = "walsh_scrapy/downloadermiddlewares/identity.py"
_ADDON: Final = "walsh_scrapy/addon.py"
_GATE: Final = "walsh_scrapy/downloadermiddlewares/robots.py"
_MATCHING: Final = "walsh_scrapy/policy/robots/rules.py"
_ROBOTSTXT: Final = "walsh_scrapy/policy/robots/robotstxt.py"
_COPY: Final = "walsh_scrapy/policy/robots/copy.py"
_LIST: Final = "walsh_scrapy/crawl/documents/publishedlist.py"
_LIST_GATE: Final = "walsh_scrapy/downloadermiddlewares/blocklist.py"
_GATES: Final = "walsh_scrapy/crawl/startup.py"
_LISTED_LATELY: Final = (
    "tests/contract/test_r3_blocklist_crawl.py"
    "::test_the_list_redirects_to_no_host_that_was_listed_lately"
)
_LIST_ORDER: Final = '    BLOCKLIST = {}, f"{{_OURS}}.blocklist.BlocklistMiddleware"\n'


def _of_key(name: str, what: str, key: str) -> Mutant:
    """Return a mutant that keeps robots.txt under this key: one file for several origins."""
    patch = Patch(
        "walsh_scrapy/crawl/documents/robotscopies.py",
        "origin_for",
        "return origin_of(request.url)",
        f'return f"{key}://{{host_of(request.url)}}"',
    )
    return Mutant(name, "R2", what, (patch,))


OF_R1_TO_R3: Final = (
    Mutant("agent-on-robots", "R1", "another User-Agent on robots.txt", (
        Patch(_HANDLER, "LastHeaders.fields", "return last", """\
if request.url.endswith("/robots.txt"):
            last |= {"User-Agent": "Mozilla/5.0"}
        return last"""),
    )),
    Mutant("referer", "R1", "sends a Referer", (
        Patch(_HANDLER, "LastHeaders.fields", "return last",
              'return last | {"Referer": request.url}'),
    )),
    Mutant("cookies", "R1", "keeps cookies, over redirects too", (
        Patch(_ADDON, "forced_settings", "|= DECLARED_MUSTS",
              '|= DECLARED_MUSTS | {"COOKIES_ENABLED": (True, "")}'),
        Patch(_ADDON, "_set_components", "for path in paths:", "for path in paths[1:]:"),
        Patch(_IDENTITY, "IdentityMiddleware.process_request", "in self._never_sent",
              "in self._never_sent[1:]"),
        Patch(_HANDLER, "LastHeaders.__init__", "(NEVER_SENT[crawl.kind])",
              "(NEVER_SENT[crawl.kind][1:])"),
    )),
    Mutant("contact-of-another", "R1", "a letter of another bot names our contact", (
        Patch("walsh_scrapy/tools/why/__init__.py", "Sender.from_runs",
              "contact=identity.CONTACT if is_walsh_research else mail and mail[0]",
              "contact=mail[0] if mail else identity.CONTACT"),
    ), ("tests/tools/test_why_contact.py::test_a_bot_without_mail_names_no_other_contact",)),
    Mutant("local-days", "R1", "the days of a letter begin at the machine's midnight", (
        Patch("walsh_scrapy/policy/durations.py", "parse_since",
              "datetime.fromtimestamp(now, UTC) - timedelta",
              "datetime.fromtimestamp(now).astimezone() - timedelta"),
    ), ("tests/policy/test_durations.py::test_a_day_begins_at_midnight_in_utc",)),
    Mutant("robots-ignored", "R2", "reads robots.txt and ignores its denials", (
        Patch(_GATE, "RobotsMiddleware._check_rules", "if not verdict.allowed:", "if False:"),
    )),
    Mutant("nothing-denied", "R2", "its reader of robots.txt finds nothing that is denied", (
        Patch(_ROBOTSTXT, "Rules._decide", "if not verdict.allowed:", "if False:"),
        Patch(_ROBOTSTXT, "Rules._decide", "if denying is not None:", "if False:"),
        Patch(_ROBOTSTXT, "Rules._decide", "return allowed or Verdict(allowed=True)",
              "return Verdict(allowed=True)"),
    )),
    _of_key("other-port", "uses the robots.txt of another port",
            "{request.url.partition(':')[0]}"),
    _of_key("http-for-https", "uses http's robots.txt for https", "http"),
    Mutant("empty-304", "R2", "a 304 on robots.txt empties the rules", (
        Patch(_COPY, "copy_after", "return replace(previous, requested_at=now, status=status, "
              "failing_since=None)", "return replace(previous, requested_at=now, "
              'status=status, failing_since=None, body=b"")'),
    )),
    Mutant("star-in-a-segment", "R2", "`*` does not cross `/`", (
        Patch(_MATCHING, "_contains", "if position < 0:",
              'if position < 0 or "/" in path[start:position]:'),
        Patch(_MATCHING, "_contains", "path.endswith(last[:-1])",
              'path.endswith(last[:-1]) and "/" not in path[start : 1 - len(last)]'),
        Patch(_MATCHING, "_contains", "return path.find(last, start) >= 0", """\
position = path.find(last, start)
    return position >= 0 and "/" not in path[start:position]"""),
    )),
    Mutant("dollar", "R2", "`$` is a plain character", (
        Patch(_MATCHING, "_normalize", 'if "$" in paths:', """\
paths = paths.replace("$", "%24")
    if "$" in paths:"""),
    )),
    Mutant("whole-path", "R2", "a rule is the whole path, not a prefix", (
        Patch(_MATCHING, "RuleIndex.deciding_rule",
              "self.prefixes.get(path[:length], none)", "self.prefixes.get(path, none)"),
    )),
    Mutant("first-match", "R2", "the first rule that matches decides, not the longest", (
        Patch(_ROBOTSTXT, "Rules._decide",
              "rule = group.index.deciding_rule(target, limit)", """\
records = zip(group.records.allows, group.records.paths, strict=True)
            rules = (
                rule._replace(number=number)
                for number, record in enumerate(records)
                if (rule := RuleIndex.from_records(*zip(record)).deciding_rule(target, limit))
            )
            rule = next(rules, None)"""),
    )),
    Mutant("first-group", "R2", "groups that name us are not merged", (
        Patch(_ROBOTSTXT, "Reading.groups_for", "if line.name == name)",
              "if line.name == name)[:1]"),
    )),
    Mutant("token-case", "R2", "finds its group only in lower case", (
        Patch(_ROBOTSTXT, "user_agent_lines", "agent[1].lower()", "agent[1]"),
    )),
    Mutant("other-group", "R2", "takes the group of a bot whose name begins as ours", (
        Patch(_ROBOTSTXT, "most_specific_name",
              "return next((token[:end] for end in ends if token[:end] in names), None)",
              "return min((name for name in names if name.startswith(token)), default=None)"),
    )),
    Mutant("byte-order-mark", "R2", "a byte order mark hides the first line", (
        Patch(_ROBOTSTXT, "decode", "for length in (3, 2, 1):", "for length in ():"),
    )),
    Mutant("visit-time", "R2", "ignores Visit-time", (
        Patch(_COPY, "RobotsFile.closed_for", "return (self.rules.opens(at) - at)",
              "return (at - at)"),
    )),
    Mutant("expired-copy", "R2", "uses a robots.txt for two more days", (
        Patch(_COPY, "RobotsCopy.is_usable", "< lifetime", "< lifetime + 2 * 86_400.0"),
    )),
    Mutant("hops-unchecked", "R2", "follows redirects whatever robots.txt has", (
        Patch(_GATE, "RobotsMiddleware.process_request", "origin = origin_for(request)", """\
from walsh_scrapy.crawl.ticket import ticket_of
        if ticket_of(request).hops:
            return None
        origin = origin_for(request)"""),
    )),
    Mutant("failure-allows", "R2", "a robots.txt that fails later allows everything", (
        Patch(_COPY, "access_result", " or status >= 500:", ":"),
    )),
    Mutant("list-never-refreshed", "R3", "the blocklist is never fetched again", (
        Patch(_LIST, "BlocklistCache.is_due",
              "is_fresh = self._tried_at <= self._clock.now() < self._due_at",
              "is_fresh = self._requested_at > 0.0"),
    )),
    Mutant("bad-list-clears", "R3", "a bad list clears the good one", (
        Patch(_LIST, "BlocklistCache.keep_last", "self._tried_at = self._clock.now()",
              "self._tried_at, self._list = self._clock.now(), Blocklist.EMPTY"),
    )),
    Mutant("no-subdomains", "R3", "the list is without subdomains", (
        Patch("walsh_scrapy/policy/blocklist.py", "Blocklist.blocks",
              'while host := host.partition(".")[2]:', 'while host := "":'),
    )),
    Mutant("list-after-robots", "R3", "checks the list after robots.txt", (
        Patch(_GATES, "Gate", _LIST_ORDER.format(10), ""),
        Patch(_GATES, "Gate", "    BACKOFF = 549,", f"{_LIST_ORDER.format(110)}    BACKOFF = 549,"),
        Patch(_LIST_GATE, "BlocklistMiddleware.process_request",
              "if not self._list.is_ready(request):", """\
if request.url.endswith("/robots.txt"):
            return
        if not self._list.is_ready(request):"""),
        Patch("walsh_scrapy/crawl/hosts/queue.py", "Queue.prepare", "for place in _ORDER:",
              "for place in (*_ORDER[2:], *_ORDER[:2]):"),
    )),
    Mutant("list-not-for-hops", "R3", "follows redirects to listed domains", (
        Patch("walsh_scrapy/crawl/documents/publishedlist.py", "PublishedList.checks",
              "(ticket.rank is not Rank.OPERATOR or bool(ticket.hops))",
              "ticket.rank is Rank.TARGET and not ticket.hops"),
    )),
    Mutant("list-at-listed", "R3", "follows a redirect of the list to a listed host", (
        Patch(_LIST, "PublishedList.checks",
              "(ticket.rank is not Rank.OPERATOR or bool(ticket.hops))",
              "ticket.rank is not Rank.OPERATOR"),
    ), (_LISTED_LATELY,)),
    Mutant("list-pruned", "R3", "deletes the document of the list in use as an old one", (
        Patch("walsh_scrapy/state/evidence.py", "EvidenceStore.old_rows",
              "select(blocklist.c.url).where(blocklist.c.copy == copies.c.sha256).exists(),", ""),
    ), ("tests/state/test_pruning.py::test_the_document_of_the_blocklist_in_use_stays",)),
)  # fmt: skip
