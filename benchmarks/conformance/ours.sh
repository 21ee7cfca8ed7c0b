#!/bin/sh
# This project: its feeds, and its feed-less sites. A list of URLs declares feeds, TOML can say more.
set -u
kept=$CONFORMANCE_FOLDER
if [ -s "$CONFORMANCE_PAGES" ]; then
  sed 's/.*/[[source]]\nurl = "&"\nkind = "llms"/' "$CONFORMANCE_PAGES" > "$kept/pages.toml"
fi
crawl() {
  spider=$1 sources=$2
  shift 2
  scrapy crawl "$spider" -a "sources=$sources" ${CONFORMANCE_FORCE:+-a force=1} "$@" \
    -s "WALSH_STATE_URL=sqlite:///$kept/state.sqlite3" \
    -s "WALSH_BLOCKLIST_URL=$CONFORMANCE_BLOCKLIST" -s WALSH_BLOCKLIST_SCHEMA_URL= \
    -s "WALSH_SIGNING_KEY=$CONFORMANCE_KEY" -s WALSH_SIGNATURE_AGENT=https://bot.example.org/keys
}
crawl feeds "$CONFORMANCE_SEEDS"
[ ! -s "$CONFORMANCE_PAGES" ] || crawl llms "$kept/pages.toml"
