"""What is signed of a message: its components and parameters (RFC 9421 2 and 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import http_sf
from http_sf.types import ItemType, ParamsType

if TYPE_CHECKING:
    from collections.abc import Sequence

Parameters: TypeAlias = ParamsType
#: A part of a message: its name, and what selects it, such as ``{"key": "sig1"}``.
Component: TypeAlias = tuple[str, ParamsType]


def identifier_of(component: Component) -> str:
    """Return the identifier of a component (RFC 9421 2): its name in quotes, and parameters."""
    return http_sf.ser(component)


def input_field(label: str, components: Sequence[Component], parameters: Parameters) -> str:
    """Return a Signature-Input field with one member (RFC 9421 4.1)."""
    covered: list[ItemType] = list(components)
    return http_sf.ser({label: (covered, parameters)})


def signature_base(values: Sequence[tuple[Component, str]], parameters: Parameters) -> str:
    """Return the text that is signed (RFC 9421 2.5): components with their values, parameters.

    ``parameters`` are signed in their order.
    """
    lines = [f"{identifier_of(component)}: {value}" for component, value in values]
    covered = input_field("sig", [component for component, _ in values], parameters)
    return "\n".join([*lines, f'"@signature-params": {covered.removeprefix("sig=")}'])


def signature_field(label: str, signature: bytes) -> str:
    """Return a Signature field with one member (RFC 9421 4.2)."""
    return http_sf.ser({label: signature})
