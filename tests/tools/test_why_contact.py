"""`walsh why` of a bot with its own identity."""

from contextlib import closing

from tests.helpers.records import RECORD, log_requests
from walsh_scrapy.identity import CONTACT
from walsh_scrapy.state import State


def test_a_bot_without_mail_names_no_other_contact(called, tmp_path):
    url = f"sqlite:///{tmp_path}/state.sqlite3"
    with closing(State(url)) as state:
        log_requests(state, RECORD)
    status, letter, _ = called(
        "why",
        RECORD.host,
        WALSH_STATE_URL=url,
        WALSH_USER_AGENT="Example-Bot/1.0 (+https://bot.example/)",
        WALSH_UA_TOKEN="Example-Bot",
        WALSH_BLOCKLIST_URL="",
    )
    assert status == 0
    assert "https://bot.example/" in letter
    assert CONTACT not in letter
