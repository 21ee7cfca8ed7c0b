"""Workers that share a state without shards: against the bound, and against static shards.

    python -m benchmarks.fleet [REQUESTS]

A thousand workers in simulated time, with the policy code of a crawl.
"""

from benchmarks.report import Figure, Report, run
from benchmarks.simulatedfleet import Fleet, Simulation, hosts_of

WORKERS = 100
#: Sources of the largest host: its chain is shorter than what the fleet takes together.
LARGEST = 100


def main(report: Report, requests: int) -> None:
    """Report each fleet."""
    hosts = hosts_of(requests, LARGEST)
    for what, fleet, most in (
        ("claims", Fleet(WORKERS), 1.1),
        ("static shards", Fleet(WORKERS, shards=True), None),
        ("claims, a fifth three times slower", Fleet(WORKERS, slow=0.2), None),
        ("static shards, a fifth three times slower", Fleet(WORKERS, slow=0.2, shards=True), None),
        ("claims, a tenth dies", Fleet(WORKERS, dying=0.1), 1.1),
    ):
        found = Simulation(hosts, fleet).run()
        report.add(
            f"{WORKERS} simulated workers, {found.requests:,} requests, {what}",
            Figure("time", found.seconds, "s", peer="bound", peer_value=found.bound, most=most),
            Figure("claims", found.claims),
            Figure("too soon", found.too_soon, most=0),
            Figure("asked again", found.again, most=0),
            Figure("missing", found.missing, most=0),
        )


if __name__ == "__main__":
    run(main, 622_000)
