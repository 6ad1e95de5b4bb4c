#!/usr/bin/env bash
# Health check of a container: does a page on this machine answer with 200? `ready PORT PATH`. A shell, since it runs all the time.
exec 3<> "/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
read -r _ status _ <&3
[ "$status" = 200 ] && exit 0
sed '1,/^\r$/d' <&3  # why not; `docker inspect` shows it
exit 1
