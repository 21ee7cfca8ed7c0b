"""What a bot owes to a host, judged over exchanges alone (R4, R5, R8; decision 35).

The audit of the state and the judge of a server's log bring their rows to the same checks, with how
exactly each knows its times. Nothing here imports another part of the package, so no fault of the
crawler can hide in its judge.

| module     | what it has                                                                |
|------------|----------------------------------------------------------------------------|
| `exchange` | one request with its answer, Retry-After, and how exactly times are known  |
| `pace`     | `AtOnce`, `Spacing`, `FirstRequests`, `Hold`, `Retries`, `Revisit`         |
"""
