"""Web Bot Auth: requests that anybody can verify.

After RFC 9421 and draft-ietf-webbotauth-httpsig-protocol, "the draft" in this room.

Times and nonces are arguments. ``keys`` reads and makes Ed25519 keys and the directory of them that
verifiers fetch, and ``requests`` signs requests. Crawls that sign nothing import neither.
"""
