"""Settings: a bad value stops the start with one clear line, for every setting."""

import math
from dataclasses import fields

import pytest
from scrapy.settings import Settings

from walsh_scrapy.options import PREFIX, BadSetting, Options

NAMES = [PREFIX + each.name.upper() for each in fields(Options)]
WRONG = [[], {}, object(), b"x", "\x00", "\ud800", math.nan, -math.inf, -1, 10**400, "x\ny" * 999]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
def test_a_value_of_another_kind_is_refused_in_one_line(name, value):
    with pytest.raises(BadSetting) as refused:
        Options.from_settings(Settings({name: value}))
    message = str(refused.value)
    assert name in message
    assert len(message.splitlines()) == 1
    assert len(message) < 600
