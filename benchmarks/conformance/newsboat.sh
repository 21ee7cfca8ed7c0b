#!/bin/sh
# newsboat in batch mode, as its manual tells to run it from cron: a URL per line, one reload thread.
# https://newsboat.org/releases/2.21/docs/newsboat.html
set -u
folder=$CONFORMANCE_FOLDER
printf 'reload-threads 1\ndownload-retries 1\ndownload-timeout 20\n' > "$folder/config"
printf 'user-agent "Example-Bot/1.0 (+https://bot.example/)"\n' >> "$folder/config"
exec newsboat --url-file="$CONFORMANCE_SEEDS" --cache-file="$folder/cache.db" \
  --config-file="$folder/config" --execute=reload
