#!/bin/sh
# rss2email, which fetches without sending: an interval between fetches from one server, and a
# User-Agent that names a page. https://github.com/rss2email/rss2email/blob/master/r2e.1
set -u
folder=$CONFORMANCE_FOLDER
r2e() { command r2e --config "$folder/r2e.cfg" --data "$folder/r2e.json" "$@"; }
if [ ! -e "$folder/r2e.cfg" ]; then
  {
    printf '[DEFAULT]\nto = reader@bot.example\nuser-agent = Example-Bot/1.0 (+https://bot.example/)\n'
    printf 'feed-timeout = 20\nsame-server-fetch-interval = 1\n'
    awk '{ printf "[feed.seed%d]\nurl = %s\n", NR, $0 }' "$CONFORMANCE_SEEDS"
  } > "$folder/r2e.cfg"
fi
r2e run --no-send
