"""The audit of a record by the contract's checklist (section 8; rows 1 to 9).

    facts -> audits -> findings -> verdicts

| module       | rows            | what it does                                             |
|--------------|-----------------|----------------------------------------------------------|
| `checklist`  | all             | the rows, and each kind of breach with its row and level |
| `facts`      | all             | what a record says: requests, denials, runs              |
| `findings`   | all             | counts breaches and keeps the worst of each kind         |
| `verdicts`   | all             | what the findings mean for each row                      |
| `identity`   | 1               | the User-Agent of each run                               |
| `robots`     | 2, 2a           | the copies of robots.txt of the time, judged again       |
| `blocklist`  | 3, 3a, 3b, 3c   | the lists in force at the time, judged again             |
| `pacing`     | 4, 5            | pauses, holds, and two requests at once                  |
| `entries`    | 6, 7, 9         | what was kept                                            |
| `frequency`  | 7, 8            | how often one URL was asked for                          |

A row that an earlier version wrote has no evidence (decision 33): it shows nothing, and is never a
breach.
"""
