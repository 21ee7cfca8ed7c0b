"""The kinds of certificates that an https site of a test web shows."""

from datetime import UTC, datetime
from enum import Enum
from typing import Final

#: The last moment at which an EXPIRED certificate was valid.
EXPIRED_ON: Final = datetime(2025, 1, 1, tzinfo=UTC)
#: The host that a WRONG_NAME certificate is for.
OTHER_HOST: Final = "other.example"


class Certificate(Enum):
    """The certificate that an https site shows."""

    GOOD = "good"  #: for the site's host, valid, signed by the CA of the web
    EXPIRED = "expired"  #: like GOOD, but valid only until EXPIRED_ON
    WRONG_NAME = "wrong name"  #: for OTHER_HOST
    NAMELESS = "nameless"  #: for no host: the subjectAltName is empty
    UNKNOWN_CA = "unknown CA"  #: signed by a CA that nobody trusts
    SELF_SIGNED = "self-signed"  #: signed with its own key, without a subjectAltName
    INCOMPLETE = "incomplete"  #: signed by an intermediate CA whose certificate is not sent
