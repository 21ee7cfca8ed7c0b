"""Signing by the vectors of the drafts, and verifying as the strictest verifier does."""

import json
from base64 import urlsafe_b64decode
from contextlib import nullcontext

import http_sf
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tests.helpers import cases
from walsh_scrapy.policy.signing import (
    AUTHORITY,
    DIGEST,
    DIRECTORY_TAG,
    BadKey,
    PrivateKey,
    RequestSigner,
    content_digest,
    directory_body,
    input_field,
    signature_base,
    signature_field,
    signed_authority,
)
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.signatures import verify_signature

#: RFC 9421 B.1.4, and its thumbprint by the drafts.
D = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"
X = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"
THUMBPRINT = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
KEY = PrivateKey(Ed25519PrivateKey.from_private_bytes(urlsafe_b64decode(D + "=")))
AGENT = "https://signature-agent.test"
CREATED = 1735689600
NOW = 1_800_000_000.5
TIMES = ';created=1800000000;expires=1800000060;tag="web-bot-auth"'


def signer(form="dictionary", key=KEY):
    return RequestSigner(key=key, agent=AGENT, form=form)


def verified(fields, *, host="example.com", keys=(KEY,), now=NOW):
    """Verify as the witness does, which shares no code with the signer; return the thumbprint."""
    headers = (("Host", host), *fields.items())
    hit = Hit(0.0, 0.01, now, "GET", "https", "example.com", 443, "/", headers)
    return verify_signature(hit, directory_body([key.public for key in keys]))


def refused(reason, fields, **options):
    with pytest.raises(AssertionError, match=reason):
        verified(fields, **options)


def test_the_test_key_has_the_thumbprint_of_the_drafts():
    assert KEY.public.thumbprint == THUMBPRINT
    assert KEY.public.jwk["x"] == X


def test_the_vector_with_authority_only():
    """draft-meunier-web-bot-auth-architecture, without a Signature-Agent."""
    nonce = (
        "mYotfW3CUjI68sbGw6oKd7kyXqPjZEtU8xFPGWFrqOAf5qC6MDe3pys3SWWCudB0MvwslHy32WXUpkR7u0lt/w=="
    )
    parameters = {"created": CREATED, "keyid": THUMBPRINT, "alg": "ed25519", "expires": 1735693200}
    parameters |= {"nonce": nonce, "tag": "web-bot-auth"}
    base = signature_base([(("@authority", {}), "example.com")], parameters)
    assert signature_field("sig1", KEY.sign(base)) == (
        "sig1=:+NA/cssf4Y2bQTMTkyvTGRCaVzp9quyUevdwwMtMOWhhOOZ2T1subBj0BtvdnrpDEuwSAbiTeElXDzHL3WWKCw==:"
    )


VECTORS = {
    # draft-ietf-webbotauth-httpsig-protocol, "EdDSA Using Curve edwards25519".
    "dictionary": (
        "agent2",
        4889289600,
        "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==",
        f'agent2="{AGENT}"',
        "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==",
    ),
    "string": (
        "sig2",
        1735693200,
        "e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==",
        f'"{AGENT}"',
        "jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==",
    ),
}


@pytest.mark.parametrize("form", VECTORS)
def test_the_vectors_of_both_forms(form):
    label, expires, nonce, agent, signature = VECTORS[form]
    fields = signer(form).sign("example.com", CREATED, expires, nonce, label)
    assert fields["Signature-Agent"] == agent
    assert fields["Signature"] == f"{label}=:{signature}:"
    component = {"dictionary": f'"signature-agent";key="{label}"', "string": '"signature-agent"'}
    assert fields["Signature-Input"] == (
        f'{label}=("@authority" {component[form]});created={CREATED};keyid="{THUMBPRINT}"'
        f';alg="ed25519";expires={expires};nonce="{nonce}";tag="web-bot-auth"'
    )
    assert verified(fields, now=CREATED) == THUMBPRINT


def test_the_vector_of_a_directory():
    """draft-ietf-webbotauth-httpsig-protocol, "Signed Directory Response"."""
    body = directory_body([KEY.public]).rstrip()
    assert body.decode() == (
        f'{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{THUMBPRINT}","x":"{X}","use":"sig"}}]}}'
    )
    digest = content_digest(body)
    assert digest == "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:"
    parameters = {"created": CREATED, "expires": 4889289600, "keyid": THUMBPRINT}
    parameters |= {"tag": DIRECTORY_TAG}
    base = signature_base([(AUTHORITY, "signature-agent.test"), (DIGEST, digest)], parameters)
    assert signature_field("binding", KEY.sign(base)) == (
        "binding=:l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:"
    )


@cases("host", "authority")
def test_the_authority_is_the_host_as_it_is_sent(host, authority):
    assert signed_authority(host) == authority


def test_signature_is_valid_for_its_lifetime_and_a_small_skew():
    fields = signer().fields("example.com", NOW, "x")
    for now in (NOW - 5, NOW, NOW + 54):
        assert verified(fields, now=now) == THUMBPRINT
    refused("created .* after the request", fields, now=NOW - 6)
    refused("expired .* before the request", fields, now=NOW + 55)


def test_a_signature_is_for_one_host_one_agent_and_one_key():
    fields = signer().fields("example.com", NOW, "x")
    other = PrivateKey.generate()
    refused("does not verify", fields, host="other.example")
    refused("does not verify", fields | {"Signature-Agent": 'sig1="https://other.example"'})
    refused(f"no key {THUMBPRINT}", fields, keys=[other])
    assert verified(fields, keys=[other, KEY]) == THUMBPRINT


@cases("change", "reason")
def test_invalid_signatures_are_refused(change, reason):
    fields = signer().fields("example.com", NOW, "x") | change
    refused(reason, fields)


def covering(agent, *components, label="sig1"):
    """Return the fields of a request whose signature covers these, and is right for them."""
    listed = http_sf.parse(f"({' '.join(components)})".encode(), tltype="list")
    parsed = [(name, of) for name, of in listed[0][0]]
    values = []
    for name, of in parsed:
        value = "example.com"
        if name == "signature-agent":
            value = agent
            if "key" in of:
                value = http_sf.ser(
                    dict(http_sf.parse(agent.encode(), tltype="dictionary"))[of["key"]]
                )
        values.append(((name, of), value))
    times = {"created": int(NOW) - 5, "expires": int(NOW) + 60}
    parameters = times | {"keyid": THUMBPRINT, "tag": "web-bot-auth"}
    return {
        "Signature-Agent": agent,
        "Signature-Input": input_field(label, parsed, parameters),
        "Signature": signature_field(label, KEY.sign(signature_base(values, parameters))),
    }


OWN, OTHER = '"signature-agent";key="sig1"', '"signature-agent";key="sig2"'
PLAIN, HOST = '"signature-agent"', '"@authority"'
#: Signature-Agent, the components that are covered, and why that is refused; None if it verifies.


@cases("agent", "components", "reason")
def test_components_of_signature_agent(agent, components, reason):
    """RFC 9421 2, draft-ietf-webbotauth-httpsig-protocol 5.2.1."""
    fields = covering(agent, *components)
    if reason is None:
        assert verified(fields) == THUMBPRINT
    else:
        refused(reason, fields)


def test_the_order_of_parameters_makes_no_other_component():
    fields = covering(f'sig1="{AGENT}"', '"@authority"', OWN)
    for first, second in (('"x";a;b', '"x";b;a'), ('"x";a;key="b"', '"x";key="b";a')):
        twice = fields["Signature-Input"].replace('"@authority"', f'"@authority" {first} {second}')
        refused("twice", fields | {"Signature-Input": twice})


def test_times_and_algorithm_have_to_be_named():
    fields = signer().fields("example.com", NOW, "x")
    for old, new, reason in (
        (f"created={int(NOW) - 5}", "created=?1", "needs both created and expires"),
        ("ed25519", "hmac-sha256", "other than ed25519"),
    ):
        changed = fields["Signature-Input"].replace(old, new)
        assert changed != fields["Signature-Input"]
        refused(reason, fields | {"Signature-Input": changed})


def test_a_key_survives_its_file_and_shows_itself_nowhere_else():
    key = PrivateKey.generate()
    assert PrivateKey.from_pem(key.pem).public == key.public
    assert "d" not in key.public.jwk
    secret = b"".join(key.pem.splitlines()[1:-1]).decode()
    assert secret not in f"{key!r}{key!s}{signer(key=key)!r}"


def test_invalid_keys_are_refused():
    curve = generate_private_key(SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    locked = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )
    for pem, reason in (
        (b"", "no private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n", "no private key in PEM"),
        (curve, "another type than Ed25519"),
        (locked, "is encrypted"),
    ):
        with pytest.raises(BadKey, match=reason):
            PrivateKey.from_pem(pem)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW + 60, "nbf": NOW - 60}, ""),
        ({"exp": NOW - 60}, "was not valid then"),
        ({"nbf": NOW + 60}, "was not valid then"),
        ({"exp": "soon"}, "the directory is not a JSON Web Key Set"),
    ],
)
def test_a_key_signs_nothing_before_and_after_its_time(changes, reason):
    fields = signer().fields("example.com", NOW, "nonce")
    headers = (("Host", "example.com"), *fields.items())
    hit = Hit(0.0, 0.01, NOW, "GET", "https", "example.com", 443, "/", headers)
    directory = json.dumps({"keys": [KEY.public.jwk | changes]})
    with pytest.raises(AssertionError, match=reason) if reason else nullcontext():
        assert verify_signature(hit, directory) == THUMBPRINT
    twice = directory.replace('"kty"', '"x": "", "kty"')
    with pytest.raises(AssertionError, match="the directory is not a JSON Web Key Set"):
        verify_signature(hit, twice)
