"""The audit of a state by the contract's checklist (section 8; rows 1 to 9).

    state -> checks -> findings

| module       | rows       | purpose                                                       |
|--------------|------------|---------------------------------------------------------------|
| `record`     | all        | rows of the state, the basis of the checks, and a check       |
| `checklist`  | all        | the rows, each kind of finding, the findings and the verdicts |
| `clocks`     | all        | where clocks were set: nothing is shown by such times         |
| `permission` | 2, 3       | the robots.txt and the blocklist of the time, read again      |
| `pace`       | 4, 5, 8    | delays, holds, one at a time, retries, and revisits           |
| `targets`    | 1, 6, 7, 9 | identity, declared targets, entries                           |

A check is a class: `rows` names the table that it sees, `order` the order, and one loop
(`walsh_scrapy.tools.attest`) brings each row to `see`.
"""
