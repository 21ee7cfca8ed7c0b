"""Copy new entries into the table `news` of another PostgreSQL database, each exactly once.

    python handover.py DATABASE [--again]

DATABASE is a connection string of libpq, such as `postgresql://news@db.internal/news`. Call this in
the folder of the project, after each crawl or once an hour. The entries and the position after them
are committed together, so a call that fails or is killed changes nothing, and the next one copies
the same entries. `--again` compares the table with all entries: call it once after a backup of the
state was restored.
"""

import json
import subprocess
import sys

import psycopg

WALSH = [sys.executable, "-m", "walsh_scrapy", "new", "--json", "--after"]
TABLES = """
CREATE TABLE IF NOT EXISTS news (
    key text PRIMARY KEY, source text NOT NULL, url text, title text, published timestamptz
);
CREATE TABLE IF NOT EXISTS news_position (position text NOT NULL)
"""
INSERT = """
INSERT INTO news (key, source, url, title, published)
VALUES (%(key)s, %(source)s, %(url)s, %(title)s, %(published)s) ON CONFLICT (key) DO NOTHING
"""


def main(database: str, *options: str) -> None:
    """Copy the entries after the position that the other database has."""
    with psycopg.connect(database) as connection:
        connection.execute(TABLES)
        connection.execute("LOCK TABLE news_position")  # two calls at once copy one after the other
        row = connection.execute("SELECT position FROM news_position").fetchone()
        position = "0" if row is None or options == ("--again",) else row[0]
        command = [*WALSH, position]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as walsh:  # noqa: S603
            for line in walsh.stdout:
                entry = json.loads(line)
                connection.execute(INSERT, entry)
                position = entry["position"]
        if walsh.returncode:
            raise SystemExit(walsh.returncode)  # its line on standard error says why
        connection.execute("DELETE FROM news_position")
        connection.execute("INSERT INTO news_position VALUES (%s)", [position])


if __name__ == "__main__":
    main(*sys.argv[1:])
