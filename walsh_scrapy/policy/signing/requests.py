"""Signed requests: what is signed of a message, and the fields that a request gets for it.

RFC 9421 2 to 4; draft-ietf-webbotauth-httpsig-protocol, "Generating HTTP Message Signature".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import http_sf
from http_sf.types import ItemType, ParamsType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.policy.signing.keys import PrivateKey

Parameters: TypeAlias = ParamsType
#: A part of a message: its name, and what selects it, such as ``{"key": "sig1"}``.
Component: TypeAlias = tuple[str, ParamsType]


def input_field(label: str, components: Sequence[Component], parameters: Parameters) -> str:
    """Return a Signature-Input field with one member (RFC 9421 4.1)."""
    covered: list[ItemType] = list(components)
    return http_sf.ser({label: (covered, parameters)})


def signature_base(values: Sequence[tuple[Component, str]], parameters: Parameters) -> str:
    """Return the text that is signed (RFC 9421 2.5): components with their values, parameters.

    ``parameters`` are signed in their order.
    """
    lines = [f"{http_sf.ser(component)}: {value}" for component, value in values]
    covered = input_field("sig", [component for component, _ in values], parameters)
    return "\n".join([*lines, f'"@signature-params": {covered.removeprefix("sig=")}'])


def signature_field(label: str, signature: bytes) -> str:
    """Return a Signature field with one member (RFC 9421 4.2)."""
    return http_sf.ser({label: signature})


#: The fields of a signed request.
FIELDS: Final = ("Signature-Agent", "Signature-Input", "Signature")
REQUEST_TAG: Final = "web-bot-auth"
#: Seconds by which ``created`` is set back: verifiers refuse one that is in their future.
BACKDATED: Final = 5
#: Seconds from ``created`` to ``expires``.
LIFETIME: Final = 60

_LABEL: Final = "sig1"


@dataclass(frozen=True, kw_only=True)
class RequestSigner:
    """Signs requests with one key."""

    key: PrivateKey
    agent: str  #: the https URL at which verifiers find the directory of keys
    #: How Signature-Agent is written: by the newest draft, or as up to
    #: draft-meunier-web-bot-auth-architecture-03.
    form: Literal["dictionary", "string"]

    def fields(self, host: str, now: float, nonce: str) -> dict[str, str]:
        """Return the fields of a request that is sent at the moment ``now``, in epoch seconds.

        ``host`` is its Host field. The request has to be one over https.
        """
        created = int(now) - BACKDATED
        return self.sign(host, created, created + LIFETIME, nonce)

    def sign(
        self, host: str, created: int, expires: int, nonce: str, label: str = _LABEL
    ) -> dict[str, str]:
        """Return the fields of a request that is signed with these times, in epoch seconds."""
        parameters: Parameters = {
            "created": created,
            "keyid": self.key.public.thumbprint,
            "alg": "ed25519",
            "expires": expires,
            "nonce": nonce,
            "tag": REQUEST_TAG,
        }
        agent = http_sf.ser(self.agent)
        component: Component = ("signature-agent", {})
        field = agent
        if self.form == "dictionary":
            component = ("signature-agent", {"key": label})
            field = f"{label}={agent}"
        values = [(("@authority", {}), signed_authority(host)), (component, agent)]
        base = signature_base(values, parameters)
        covered = [component for component, _ in values]
        written = (
            field,
            input_field(label, covered, parameters),
            signature_field(label, self.key.sign(base)),
        )
        return dict(zip(FIELDS, written, strict=True))


def signed_authority(host: str) -> str:
    """Return ``@authority`` of an https request by its Host field (RFC 9421 2.2.3).

    Verifiers know the Host as it is sent: only case and default port are normalized.
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port in ("", "443") else host.lower()
