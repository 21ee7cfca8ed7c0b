"""requests and feedparser, with the validators of the last run and a delay of one second.

https://feedparser.readthedocs.io/en/latest/http-etag.html recommends validators.
"""

import json
import os
import time
from pathlib import Path

import feedparser
import requests

state_file = Path(os.environ["CONFORMANCE_FOLDER"]) / "validators.json"
validators_by_url = json.loads(state_file.read_text("utf-8")) if state_file.exists() else {}
session = requests.Session()
for url in Path(os.environ["CONFORMANCE_SEEDS"]).read_text("utf-8").split():
    validators = validators_by_url.get(url, {})
    try:
        response = session.get(url, headers=validators, timeout=20)
    except requests.RequestException as error:
        print(url, error)
        continue
    print(url, response.status_code, len(feedparser.parse(response.content).entries))
    pairs = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
    validators_by_url[url] = {
        name: response.headers[field] for name, field in pairs if field in response.headers
    }
    state_file.write_text(json.dumps(validators_by_url), "utf-8")
    time.sleep(1)
