"""The audit of a record by the contract's checklist (section 8; rows 1 to 9).

    record -> checks -> findings

| module       | rows       | what it does                                                      |
|--------------|------------|-------------------------------------------------------------------|
| `record`     | all        | rows of the record, what they are judged by, and what a check is  |
| `checklist`  | all        | the rows, each kind of breach, what was found, and what that says |
| `clocks`     | all        | where clocks were set: what follows from such times is not shown  |
| `permission` | 2, 3       | the robots.txt and the blocklist of the time, judged again        |
| `pace`       | 4, 5, 8    | delays, holds, one at a time, retries, and revisits               |
| `targets`    | 1, 6, 7, 9 | who asked for what, and what was kept of it                       |

A check is a class: `rows` names the table that it sees, `order` the order, and one loop
(`walsh_scrapy.tools.attest`) brings each row to `see`.
"""
