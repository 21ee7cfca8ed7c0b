"""The cost of a signature: the fields of one request over https, in CPU time.

    python -m benchmarks.signing [REQUESTS]

Goal: under 0.5 ms per request. The fastest of several rounds is reported, because other work of the
machine only adds to it.
"""

from time import process_time

from benchmarks.report import Figure, Report, run
from walsh_scrapy.crawl.messages import Signer
from walsh_scrapy.policy.signing import PrivateKey, RequestSigner

ROUNDS = 7


def main(report: Report, requests: int) -> None:
    """Report the milliseconds of a signature, for both forms."""
    key = PrivateKey.generate()
    for form in ("dictionary", "string"):
        signer = Signer(RequestSigner(key=key, agent="https://bot.example/", form=form))
        shortest = min(_round(signer, requests) for _ in range(ROUNDS))
        report.add(f"a signed request, {form}", Figure("CPU", shortest, "ms", max_value=0.5))


def _round(signer: Signer, requests: int) -> float:
    """Return the milliseconds of CPU time of one request."""
    urls = [f"https://h{number}.example/feed.xml?page={number}" for number in range(requests)]
    begun = process_time()
    for url in urls:
        signer.fields(url, 1_800_000_000.0)
    return (process_time() - begun) / requests * 1e3


if __name__ == "__main__":
    run(main, 2000)
