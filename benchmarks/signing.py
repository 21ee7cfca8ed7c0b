"""What a signature costs: the fields of one request over https, in CPU time.

    python -m benchmarks.signing

Goal: under 0.5 ms a request. The least of several rounds counts: what else the machine does only
adds to it.
"""

from time import process_time

from walsh_scrapy.policy.signing.keys import PrivateKey
from walsh_scrapy.policy.signing.requests import RequestSigner
from walsh_scrapy.runtime.signing import Signer

ROUNDS = 7
REQUESTS = 2_000
GOAL = 0.5


def main() -> None:
    """Print the milliseconds of a signature, for both forms."""
    key = PrivateKey.generate()
    print(f"CPU per signed request, {REQUESTS} requests of {REQUESTS} hosts (goal: {GOAL} ms)")
    for form in ("dictionary", "string"):
        signer = Signer(
            RequestSigner(key=key, agent="https://bot.example/", form=form, lifetime=60)
        )
        print(f"  {form:<10}  {min(_round(signer) for _ in range(ROUNDS)):.3f} ms")


def _round(signer: Signer) -> float:
    """Return the milliseconds of CPU time of one request."""
    urls = [f"https://h{number}.example/feed.xml?page={number}" for number in range(REQUESTS)]
    begun = process_time()
    for url in urls:
        signer.fields(url, 1_800_000_000.0)
    return (process_time() - begun) / REQUESTS * 1e3


if __name__ == "__main__":
    main()
