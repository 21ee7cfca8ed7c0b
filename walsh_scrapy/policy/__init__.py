"""All decisions about requests, as pure functions: time, randomness and bytes are arguments.

| rule | modules                   |
|------|---------------------------|
| R1   | `signing`                 |
| R2   | `robots`                  |
| R3   | `blocklist`               |
| R4   | `pacing`, `frontier`      |
| R5   | `pacing`, `backoff`       |
| R6   | `urls`                    |
| R7   | `urls`                    |
| R8   | `freshness`               |
| all  | `connectivity`, `durations`, `wording` |
"""
