"""An account as JSON: every fact of the letter, and the hashes of the documents."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.tools.why.letter import why

if TYPE_CHECKING:
    from walsh_scrapy.policy.audit.pauses import JudgedRequest
    from walsh_scrapy.policy.audit.record import LoggedDenial, LoggedRequest
    from walsh_scrapy.tools.why.account import Account, RobotsOfDay


def record_of(account: Account) -> dict[str, Any]:
    """Return the object of ``--json``: times as RFC 3339 in UTC, durations in seconds.

    Only what the operator says of himself has an address.
    """
    told = {
        "host": account.host,
        "url": account.url,
        "day": account.day,
        "sender": None,
        "requests": [_request(sent, account) for sent in account.requests],
        "denials": [_denial(denial, account) for denial in account.denials],
        "robots": [_robots(robots) for robots in account.robots],
        "acts": [asdict(act) | {"at": rfc3339(act.at)} for act in account.acts],
        "outlook": account.outlook.as_dict(),
        "other_days": dict(account.other_days),
    }
    sender = asdict(account.sender) | {"opt_out": account.sender.opt_out}
    return {name: _for_others(value) for name, value in told.items()} | {"sender": sender}


def _for_others(value: Any) -> Any:  # noqa: ANN401 - of JSON
    if isinstance(value, dict):
        return {name: _for_others(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_others(each) for each in value]
    return for_others(value) if isinstance(value, str) else value


def _request(sent: JudgedRequest, account: Account) -> dict[str, Any]:
    record = sent.record
    return {
        "at": rfc3339(record.sent_at),
        "url": record.url,
        "purpose": record.purpose,
        "why": why(record, account),
        "pause": sent.pause.kept,
        "pause_asked": sent.pause.asked,
        "status": record.status,
        "error": record.error or None,
        "seconds": record.seconds,
        "hold": record.hold,
        "gates": record.gates,
        "run": record.run,
        "signed_by": account.signed_by(record),
        **_evidence(record, account),
    }


def _denial(denial: LoggedDenial, account: Account) -> dict[str, Any]:
    return {
        "at": rfc3339(denial.at),
        "url": denial.url,
        "gate": denial.gate,
        "why": denial.reason,
        "run": denial.run,
        **_evidence(denial, account),
    }


def _evidence(record: LoggedRequest | LoggedDenial, account: Account) -> dict[str, Any]:
    """Return the columns; another site that redirected here is not named (decision 33)."""
    return {
        "rule": record.rule,
        "line": record.line,
        "robots": record.robots,
        "robots_at": rfc3339(record.robots_at),
        "blocklist": record.blocklist,
        "robots_status": record.robots_status,
        "is_redirected": record.redirected_by is not None,
        "redirected_by": account.redirected_by(record),
    }


def _robots(robots: RobotsOfDay) -> dict[str, Any]:
    return {
        "origin": robots.origin,
        "hash": robots.hash,
        "asked": [each._asdict() | {"at": rfc3339(each.at)} for each in robots.asked],
        "quoted": [line._asdict() for line in robots.quoted],
        "usage": [record._asdict() for record in robots.usage],
    }
