"""requests and feedparser, with the validators of the last run and a delay of one second."""

import json
import os
import time
from pathlib import Path

import feedparser
import requests

kept = Path(os.environ["CONFORMANCE_FOLDER"]) / "validators.json"
known = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
session = requests.Session()
for url in Path(os.environ["CONFORMANCE_SEEDS"]).read_text("utf-8").split():
    validators = known.get(url, {})
    try:
        response = session.get(url, headers=validators, timeout=20)
    except requests.RequestException as error:
        print(url, error)
        continue
    print(url, response.status_code, len(feedparser.parse(response.content).entries))
    pairs = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
    known[url] = {
        name: response.headers[field] for name, field in pairs if field in response.headers
    }
    kept.write_text(json.dumps(known), "utf-8")
    time.sleep(1)
