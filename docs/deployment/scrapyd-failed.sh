#!/bin/sh
# Names the jobs that failed within the last hour, by the log of Scrapyd:
#   scrapyd-failed.sh /srv/scrapyd/scrapyd.log
# Exit status: 0 if none did, 1 if some did, 2 if the log cannot be read.
since=$(date --date '1 hour ago' '+%Y-%m-%dT%H:%M:%S') || exit 2
# With the log that logrotate set aside last, which is not compressed yet.
set -- "$1" "$1"-????????
[ -e "$2" ] || set -- "$1"
exec awk -v since="$since" '
  /Process died:/ && $1 >= since { print; failed = 1 }
  END { exit failed }
' "$@"
