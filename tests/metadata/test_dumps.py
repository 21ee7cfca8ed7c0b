"""R9: an `llms-full.txt` is recognised, so that it is never requested."""

import pytest

from walsh_scrapy.metadata.alternates import is_dump


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("llms-full.txt", True),
        ("docs/llms-full.txt?v=2", True),
        ("LLMS-Full.TXT", True),
        ("llms%2Dfull.txt", True),
        ("%6c%6Cms-full%2etxt", True),
        ("llms-full.txt/", True),
        ("/llms-full.txt", True),
        ("docs%2Fllms-full.txt", True),
        ("llms-full.txt;v=2", True),
        ("llms-full.txt%20", True),
        ("llms.txt", False),
        ("llms-full.txt.html", False),
        ("about-llms-full.txt", False),
        ("?page=llms-full.txt", False),
    ],
)
def test_llms_full_txt_is_recognised_in_every_spelling(path, expected):
    assert is_dump(f"https://docs.example/{path}") is expected
