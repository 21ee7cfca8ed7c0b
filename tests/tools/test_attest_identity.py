"""`scrapy attest` of another bot: a page about its own name, by what binds every bot."""

import json
import time
from contextlib import closing

import pytest

from tests.helpers.sites import feed
from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.policy.audit.record import Bot
from walsh_scrapy.state import State
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Site
from walsh_scrapy.tools.attest import attest, attestation_text

BEGIN = 1_767_225_600.0
OTHER = {
    "WALSH_USER_AGENT": "Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_BLOCKLIST_URL": "",
}
BOT = Bot(OTHER["WALSH_USER_AGENT"], "Example-Bot")


@pytest.fixture
def record(simulated, tmp_path):
    """Crawl with some settings; return a function that attests for a bot."""

    def crawl(*settings):
        sites = [
            Site("a.example", "User-agent: Example-Bot\nDisallow: /no/\n", {"/feed": feed()}),
            Site("b.example", "", {"/feed": feed()}),
        ]
        for number, each in enumerate(settings):
            simulated(
                *sites,
                sources=["http://a.example/feed", "http://b.example/feed"],
                starts=[number * 2 * DAY],
                settings={"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3", **each},
            )

        def of(bot):
            state = State(f"sqlite:///{tmp_path}/state.sqlite3")
            with closing(state), state.log() as log:
                return attest(log, time.time(), bot)

        return of

    return crawl


def verdicts(attestation):
    return {row["row"]: row["verdict"] for row in attestation["checklist"]}


def test_another_bot_gets_a_page_about_its_own_name(record):
    attestation = record(OTHER)(BOT)
    assert attestation["holds"]
    assert attestation["bot"] == BOT.user_agent
    found = verdicts(attestation)
    assert {found[row] for row in ("1", "2", "2a", "4", "6")} == {"holds"}
    assert {found[row] for row in ("3", "3a", "3b", "3c")} == {"not applicable"}
    text = "\n".join(attestation_text(attestation))
    assert "Named Example-Bot group overrides *" in text
    assert "not applicable: this bot has no blocklist" in text
    assert "Walsh-Research" not in text


def test_a_bot_that_asks_hosts_at_once_and_follows_links_breaks_nothing_of_its_own(record):
    attestation = record(OTHER | {"WALSH_SERIAL": False, "WALSH_SCOPE": "any"})(BOT)
    assert attestation["holds"]
    reasons = {row["row"]: row["not_applicable"] for row in attestation["checklist"]}
    assert "WALSH_SERIAL = False" in reasons["4"]
    assert "WALSH_SCOPE" in reasons["6"]


def test_a_new_version_of_a_bot_is_the_same_bot(record):
    newer = OTHER | {"WALSH_USER_AGENT": OTHER["WALSH_USER_AGENT"].replace("1.0", "1.1")}
    assert verdicts(record(OTHER, newer)(BOT))["1"] == "holds"


def test_two_bots_in_one_state_are_one_too_many(record):
    of = record(OTHER, {})
    for bot, sent in ((BOT, USER_AGENT), (Bot(USER_AGENT, "Walsh-Research"), BOT.user_agent)):
        attestation = of(bot)
        assert not attestation["holds"]
        (row,) = [row for row in attestation["checklist"] if row["row"] == "1"]
        assert sent in json.dumps(row["findings"])
