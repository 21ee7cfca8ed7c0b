"""Mutants that break R6 to R9: scope, conditional requests, frequency, and feed-less sites."""

from typing import Final

from benchmarks.mutants.mutant import Mutant, Patch

_SCOPE: Final = "walsh_scrapy/feeds/scope.py"
_MESSAGES: Final = "walsh_scrapy/crawl/messages.py"
_SPIDERS: Final = "walsh_scrapy/feeds/spiders.py"
_FEED_CRAWL: Final = "tests/feeds/test_feedcrawl.py"
_ENTRIES: Final = "tests/feeds/stores/test_entrystore.py"
_DOCUMENTS: Final = "tests/feeds/metadata/test_document.py"
_ITEM: Final = "yield EntryItem.from_entry(entry, feed=feed, source=source.url)"
_OF_URL: Final = "is_of_url = validators is not None and validators.url == request.url"
#: Lets every request pass that a spider makes.
_UNSCOPED: Final = Patch(
    _SCOPE,
    "ScopeMiddleware._declared_by",
    'return "moved" if self._has_moved_to(first, source_of(request)) else None',
    'return "declared"',
)


def _following(name: str, what: str, urls: str) -> Mutant:
    """Return a mutant that requests URLs of a feed, which `urls` computes from the response."""
    return Mutant(name, "R6", what, (
        _UNSCOPED,
        Patch(_SPIDERS, "FeedsSpider.parse", _ITEM, f"""\
{_ITEM}
        import re
        from urllib.parse import urljoin

        from scrapy import Request

        for url in {urls}:
            yield Request(urljoin(response.url, url), callback=lambda _: None)"""),
    ))  # fmt: skip


OF_R6_TO_R9: Final = (
    _following("enclosures", "requests the enclosures of a feed",
               """re.findall(r'<enclosure url="([^"]+)', response.body.decode())"""),
    _following("entry-links", "requests the pages of the entries",
               "[entry.url for entry in feed.entries if entry.url]"),
    _following("images", "requests images", '[f"/{number}.png" for number in range(3)]'),
    Mutant("content", "R6", "items have content", (
        Patch("walsh_scrapy/feeds/firstseen.py", "DocumentItems.build_records",
              "item.to_stored()", 'item.to_stored() | {"content": "All of it."}'),
    )),
    Mutant("private-hop", "R6", "a public host may redirect to a private address", (
        Patch("walsh_scrapy/downloadermiddlewares/privatehosts.py",
              "PrivateHostsMiddleware._check",
              "hops = [hop.url for hop in hops_of(request)]",
              "hops = [hop.url for hop in hops_of(request)]\n        if request: return None"),
        Patch("walsh_scrapy/downloadermiddlewares/privatehosts.py",
              "PrivateHostsMiddleware.process_response", "if is_marked and", "if not request and"),
    )),
    Mutant("first-redirect", "R6", "of several redirects the log names the first one", (
        Patch("walsh_scrapy/crawl/ticket.py", "evidence_of", "ticket.hops[-1].url",
              "ticket.hops[0].url"),
    ), ("tests/crawl/test_ticket.py::test_a_redirected_request_names_the_last_redirect",)),
    Mutant("private-idle", "R6", "uses an idle connection to a private host for a public one", (
        Patch("walsh_scrapy/downloadhandler.py", "HandlerConnections.connect",
              "if public_only and not (endpoint.proxy or is_public(stream.peer)):", "if False:"),
    ), ("tests/crawl/test_network.py::test_no_idle_connection_to_a_private_address_is_used",)),
    Mutant("hops-over-hosts", "R6", "counts only redirects within a host", (
        Patch("walsh_scrapy/downloadermiddlewares/redirect.py",
              "RedirectMiddleware.process_response",
              'request.meta["redirect_times"] = len(hops)', """\
hosts = [url.split("/")[2] for url in (*(hop.url for hop in hops), request.url)]
        within = sum(host == following for host, following in zip(hosts, hosts[1:]))
        request.meta["redirect_times"] = within
        request.meta["redirect_ttl"] = self.max_redirect_times - within"""),
    )),
    Mutant("unconditional", "R7", "sends no validators", (
        Patch(_MESSAGES, "conditions_of", _OF_URL, "is_of_url = False"),
    )),
    Mutant("validators-elsewhere", "R7", "sends the validators of another URL", (
        Patch(_MESSAGES, "conditions_of", _OF_URL, "is_of_url = True"),
    )),
    Mutant("strong-etag", "R7", "sends a weak ETag as a strong one", (
        Patch(_MESSAGES, "conditions_of", "validators.etag if validators and is_of_url",
              'validators.etag.removeprefix(b"W/") if validators and validators.etag '
              "and is_of_url"),
    )),
    Mutant("error-validators", "R7", "the ETag of a 404 replaces that of the feed", (
        Patch("walsh_scrapy/feeds/outcome.py", "record_after",
              "record = replace(record, failures=previous.failures + 1)",
              "record = with_validators(replace(record, failures=previous.failures + 1), result)"),
    )),
    Mutant("reported-again", "R7", "entries are stored and reported again in each run", (
        Patch("walsh_scrapy/feeds/stores/sourcestore.py", "SourceStore.outcome_writer.write",
              "insert_unseen(connection, entries, backfill=is_first, is_rerun=is_rerun)", """\
insert_unseen(connection, [
                replace(each, keys=each.keys._replace(page=f"{each.run} {each.keys.page}", id=None))
                for each in entries
            ])"""),
    )),
    Mutant("own-suffix", "R7", "a source owns the entries of each host that ends with its own", (
        Patch("walsh_scrapy/policy/entrykeys.py", "SourceKeys.is_own",
              'return host_of(url or id_ or "") in ("", self._host)', """\
host = host_of(url or id_ or "")
        return not host or host.endswith(self._host)"""),
    ), ("tests/policy/test_entrykeys.py::test_a_source_owns_the_entries_of_its_host_only",)),
    Mutant("race-dropped", "R7", "an entry that lost a race with another crawl is dropped", (
        Patch("walsh_scrapy/feeds/stores/entrywriter.py", "insert_unseen",
              "if rows.places <= inserted.keys():", "if rows:"),
    ), (f"{_ENTRIES}::test_entry_inserted_by_another_crawl_is_compared_again",)),
    Mutant("hourly", "R8", "visits a source once per hour", (
        Patch("walsh_scrapy/feeds/stores/sourcestore.py", "_due_params",
              "min(min_revisit, MAX_WAIT_SECONDS)", "min(min_revisit, 3600.0)"),
    )),
    Mutant("every-unseen", "R8", "does not see a changed `every` if nothing else changed", (
        Patch("walsh_scrapy/feeds/stores/sync.py", "Sync._write_sources",
              "if rewrite or stored.get(key) != source", """\
if rewrite or key not in stored
                or {**row_of_source(key, stored[key]), "every": 0}
                != {**row_of_source(key, source), "every": 0}"""),
    )),
    Mutant("old-page", "R8", "visits sources that were read before their host was lost", (
        Patch("walsh_scrapy/feeds/feedcrawl.py", "DueSources.due_urls",
              "if not self._hosts.has_for(host, self):", "if not self._hosts.has(host):"),
    ), (f"{_FEED_CRAWL}::test_a_host_owned_again_for_a_redirect_does_not_stop_visits",)),
    Mutant("local-hours", "R8", "takes skipHours and skipDays for those of this machine", (
        Patch("walsh_scrapy/feeds/freshness.py", "UpdateHints.opens",
              "datetime.fromtimestamp(at, UTC)", "datetime.fromtimestamp(at)"),
    ), ("tests/feeds/test_freshness.py::test_hours_to_skip_are_not_those_of_the_machine",)),
    Mutant("gone", "R8", "requests a source again that is gone (410)", (
        Patch("walsh_scrapy/feeds/outcome.py", "Outcomes._commit_end",
              'if record.outcome == "gone":', "if False:"),
    )),
    Mutant("dump", "R9", "requests llms-full.txt", (
        _UNSCOPED,
        Patch(_SCOPE, "ScopeMiddleware._check_request", "if is_dump(request.url):", "if False:"),
        Patch(_SPIDERS, "LlmsSpider.first_request", "LLMSTXT_PATH", '"/llms-full.txt"'),
    )),
    Mutant("markdown-elsewhere", "R9", "requests announced markdown at another port", (
        Patch("walsh_scrapy/feeds/metadata/formats.py", "_server", "return urlsplit(url).netloc",
              'return urlsplit(url).hostname or ""'),
    ), (f"{_DOCUMENTS}::test_only_urls_on_the_pages_own_server_are_returned",)),
    Mutant("html-only", "R9", "requests no structured form of a page", (
        Patch(_SPIDERS, "LlmsSpider.parse", "if llmstxt is None:", "if True:"),
        Patch(_SPIDERS, "LlmsSpider._request_page", "self.accept,", '"text/html",'),
    )),
)  # fmt: skip
