"""The audit of a record by the contract's checklist (section 8; rows 1 to 9).

    record -> audits -> findings -> verdicts

| module      | rows   | what it does                                                             |
|-------------|--------|--------------------------------------------------------------------------|
| `record`    | all    | rows of the record, and what they are judged by                          |
| `checklist` | all    | the rows, each kind of breach, the findings, and what they mean          |
| `gates`     | 1 to 3 | the User-Agent, robots.txt and blocklist of the time, judged again       |
| `fetches`   | 2      | the requests that brought each robots.txt                                |
| `listage`   | 3      | how old the blocklist was                                                |
| `pauses`    | 4, 5   | pauses, holds, and two requests at once                                  |
| `targets`   | 6      | what was asked for                                                       |
| `refusals`  | 5      | the hold after each refusal                                              |
| `firstrequests` | 4  | whether first requests to hosts were held back                           |
| `visits`    | 6 to 9 | how often it was asked for, and what was kept                            |
| `judgements` | all   | which days were judged before, and are as they were                      |
"""
