"""The audit of a record by the contract's checklist (section 8; rows 1 to 9).

    record -> audits -> findings -> verdicts

| module      | rows   | what it does                                                             |
|-------------|--------|--------------------------------------------------------------------------|
| `record`    | all    | rows of the record, and what they are judged by                          |
| `checklist` | all    | the rows, and each kind of breach                                        |
| `findings`  | all    | what an audit found, and what that says of each row                      |
| `runs`      | 1, 4   | the User-Agent, two requests at once, first requests that were held back |
| `robots`    | 2      | the robots.txt of the time, judged again, and where it came from         |
| `blocklists` | 3     | the blocklist of the time, judged again, and how old it was              |
| `pauses`    | 4, 5   | the pauses and holds of hosts                                            |
| `targets`   | 6      | what was asked for                                                       |
| `refusals`  | 5      | the hold after each refusal                                              |
| `visits`    | 6 to 9 | how often it was asked for, and what was kept                            |
"""
