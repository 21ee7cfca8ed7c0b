"""A crawler that breaks every rule. The conformance test has to see each of its faults."""

import http.client
import itertools
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin

MAX_TRIES = 12
#: How often the list of opt-outs is requested, before everything else.
LISTS = 8
NUMBERS = itertools.count()


#: Long expired, by no key, for no host, and the same with each request.
SIGNATURE = {
    "Signature-Input": 'bad=("@authority");created=1;expires=2;keyid="bad";tag="web-bot-auth"',
    "Signature": "bad=:YmFk:",
}


def ask(url, data=None):
    headers = {"User-Agent": f"Bad/{next(NUMBERS)}", "Cookie": "a=b", "If-None-Match": '"x"'}
    headers["Accept-Encoding"] = "gzip"
    if not url.endswith("/robots.txt"):
        headers |= SIGNATURE
    try:
        request = urllib.request.Request(url, data, headers)
        return 200, urllib.request.urlopen(request, timeout=10).read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (OSError, http.client.HTTPException):
        return 200, b""


def crawl(url):
    for address in (url, urljoin(url, "/robots.txt"), urljoin(url, "/image.png")):
        for _ in range(MAX_TRIES):
            if ask(address)[0] not in (429, 500, 503):
                break
    ask(os.environ["CONFORMANCE_BLOCKLIST"])
    ask(url)
    ask(urljoin(url, "/robots.txt"))
    ask(url, data=b"posted")


names = ("CONFORMANCE_SEEDS", "CONFORMANCE_PAGES")
urls = [url for name in names for url in Path(os.environ[name]).read_text("utf-8").split()]
_, listed = ask(os.environ["CONFORMANCE_BLOCKLIST"])
domains = re.findall(r'"domain": "([^"]+)"', listed.decode())
# After each answer of the list a request goes to the domains of the first one.
for _ in range(LISTS):
    for url in urls:
        if urllib.parse.urlsplit(url).hostname in domains:
            ask(url)
    ask(os.environ["CONFORMANCE_BLOCKLIST"])
with ThreadPoolExecutor(len(urls)) as pool:
    list(pool.map(crawl, urls))
