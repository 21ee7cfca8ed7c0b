"""The identity of the crawler (R1): a new version of the contract changes this file only."""

from typing import Final

#: The contract this code targets, so that attestations can be compared (contract, section 10).
SPEC_VERSION: Final = "walsh-research-compliance/v1"
#: Sent with every request, exactly as it is.
USER_AGENT: Final = "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"
#: The product token that robots.txt groups are matched against, case-insensitively.
UA_TOKEN: Final = "Walsh-Research"  # noqa: S105 - a robots.txt product token, no secret
#: The page about the bot, which its User-Agent names.
POLICY_URL: Final = "https://wal.sh/bot/"
#: Where its operator is written to (contract, section 5.2).
CONTACT: Final = "j@wal.sh"
#: The published opt-outs (R3).
BLOCKLIST_URL: Final = "https://wal.sh/.well-known/walsh-research/blocklist.json"
#: The JSON Schema of the opt-outs.
BLOCKLIST_SCHEMA_URL: Final = "https://wal.sh/.well-known/walsh-research/blocklist.schema.json"
