"""The public identity of the Walsh-Research bot (R1). Other bots set their own in settings."""

from typing import Final

#: The version of the contract that this code implements; attestations state it.
SPEC_VERSION: Final = "walsh-research-compliance/v1"
#: The User-Agent header of every request.
USER_AGENT: Final = "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"
#: The product token that is matched against the groups of robots.txt, in any case.
UA_TOKEN: Final = "Walsh-Research"  # noqa: S105 - a robots.txt product token, no secret
#: The page about the bot, for site owners.
POLICY_URL: Final = "https://wal.sh/bot/"
#: The e-mail address of the bot's operator.
CONTACT: Final = "j@wal.sh"
#: The published blocklist: hosts whose owners opted out (R3).
BLOCKLIST_URL: Final = "https://wal.sh/.well-known/walsh-research/blocklist.json"
#: The JSON Schema of the blocklist.
BLOCKLIST_SCHEMA_URL: Final = "https://wal.sh/.well-known/walsh-research/blocklist.schema.json"
