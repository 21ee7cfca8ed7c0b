#!/bin/sh
# curl in a loop, as in many a cron job: a pause of a second, redirects, two retries, ETags.
# https://curl.se/docs/manpage.html documents --retry and --etag-compare.
set -u
kept=$CONFORMANCE_FOLDER
while read -r url; do
  name=$(printf %s "$url" | tr -c 'A-Za-z0-9\n' _)
  curl --silent --show-error --location --max-time 20 --retry 2 --output "$kept/$name" \
    --etag-compare "$kept/$name.etag" --etag-save "$kept/$name.etag" "$url"
  sleep 1
done < "$CONFORMANCE_SEEDS"
