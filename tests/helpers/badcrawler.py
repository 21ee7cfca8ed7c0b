"""A crawler that breaks every rule. The conformance test has to see each of its faults."""

import itertools
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin

MAX_TRIES = 12
NUMBERS = itertools.count()


#: Long expired, by no key, for no host, and the same with each request.
SIGNATURE = {
    "Signature-Input": 'bad=("@authority");created=1;expires=2;keyid="bad";tag="web-bot-auth"',
    "Signature": "bad=:YmFk:",
}


def ask(url, data=None):
    headers = {"User-Agent": f"Bad/{next(NUMBERS)}", "Cookie": "a=b", "If-None-Match": '"x"'}
    if not url.endswith("/robots.txt"):
        headers |= SIGNATURE
    try:
        request = urllib.request.Request(url, data, headers)
        urllib.request.urlopen(request, timeout=10).read()
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        pass
    return 200


def crawl(url):
    for address in (url, urljoin(url, "/robots.txt"), urljoin(url, "/image.png")):
        for _ in range(MAX_TRIES):
            if ask(address) not in (429, 500, 503):
                break
    ask(os.environ["CONFORMANCE_BLOCKLIST"])
    ask(url)
    ask(urljoin(url, "/robots.txt"))
    ask(url, data=b"posted")


names = ("CONFORMANCE_SEEDS", "CONFORMANCE_PAGES")
urls = [url for name in names for url in Path(os.environ[name]).read_text("utf-8").split()]
ask(os.environ["CONFORMANCE_BLOCKLIST"])
with ThreadPoolExecutor(len(urls)) as pool:
    list(pool.map(crawl, urls))
