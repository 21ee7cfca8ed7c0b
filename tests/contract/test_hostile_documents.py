"""Decision 34: a hostile document costs neither the state nor another source anything."""

import gzip
import json

from tests.helpers.sites import feeds, judge, rows_of, site
from walsh_scrapy.testing.web import Reply, Site

AUTHORS = [{"name": f"{number:0290}"} for number in range(100)]


def packed(host, document, content_type):
    coded = {"Content-Encoding": "gzip"}
    page = Reply(gzip.compress(document.encode()), content_type=content_type, headers=coded)
    return Site(host, "", {"/feed": page})


def test_hostile_feeds_beside_an_honest_one(direct_web, crawl):
    items = [{"id": number} for number in range(3000)]
    inherited = {"version": "https://jsonfeed.org/version/1.1", "authors": AUTHORS, "items": items}
    attributes = " ".join(f"a{number}=''" for number in range(50_000))
    web = direct_web(
        packed("inherited.example", json.dumps(inherited), "application/feed+json"),
        packed("attributes.example", f"<rss><channel {attributes}/></rss>", "text/xml"),
        site("honest.example"),
    )
    result = crawl(web, sources=feeds("inherited", "attributes", "honest"))
    judge(result)
    rows = rows_of(crawl, "SELECT url, outcome, detail FROM sources")
    ((size,),) = rows_of(crawl, "SELECT sum(length(item)) FROM entries")
    found = {url.split("/")[2]: (outcome, detail) for url, outcome, detail in rows}
    left_out = result.stats["walsh/entries/left_out"]
    assert found["honest.example"] == ("fetched", "")
    assert found["inherited.example"][0] == "fetched"
    assert f"{left_out}, the oldest, are left out" in found["inherited.example"][1]
    assert found["attributes.example"][0] == "failed"
    assert "more than 100 attributes of one element" in found["attributes.example"][1]
    assert len(result.items) == 3000 - left_out + 2
    assert 4_000_000 < size < 8 * 1024 * 1024
