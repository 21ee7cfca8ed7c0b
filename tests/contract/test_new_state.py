"""A crawl with another WALSH_STATE_URL: it says that its state is new."""

from tests.helpers.sites import IDENTITY, feeds, log_lines, site
from walsh_scrapy.testing.crawl import write_sources


def test_a_crawl_on_a_new_state_warns_once(loopback_web, crawl, tmp_path):
    web = loopback_web(site("blog.example"))
    file = write_sources(tmp_path / "sources.toml", feeds("blog"))

    def run(name):
        settings = {
            "WALSH_STATE_URL": f"sqlite:///{tmp_path / name}",
            "WALSH_BLOCKLIST_URL": "",
        }
        result = crawl(web, sources=file, settings=IDENTITY | settings)
        assert result.exit_code == 0
        return log_lines(result, "the state", name, "is new")

    (line,) = run("one.sqlite3")
    assert "INFO" in line
    assert run("one.sqlite3") == []
    (line,) = run("two.sqlite3")
    assert "WARNING" in line
    assert str(tmp_path) in line
    assert run("two.sqlite3") == run("one.sqlite3") == []
