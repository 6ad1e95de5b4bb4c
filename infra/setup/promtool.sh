#!/usr/bin/env bash
# Get promtool, which checks Prometheus rules, and print its path on the last line.
#
# Order: the one installed by an earlier call, the one on the PATH, Debian's or Ubuntu's package `prometheus`, of which only this program is
# taken: no service is installed or started.
set -euo pipefail

home=${TILTYARD_HOME:-$HOME/.cache/tiltyard}
target=$home/bin/promtool
for candidate in "$target" "$(command -v promtool || true)"; do
    if [ -n "$candidate" ] && "$candidate" --version > /dev/null 2>&1; then echo "$candidate"; exit 0; fi
done
command -v apt-get > /dev/null || { echo "promtool: please install Prometheus, or put promtool at $target" >&2; exit 1; }
echo "set-up: getting promtool" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download prometheus > /dev/null 2>&1 \
    || { apt-get -qq update > /dev/null 2>&1 || true; apt-get -qq -o APT::Sandbox::User=root download prometheus > /dev/null 2>&1; } \
    || { echo "promtool: the package prometheus can't be downloaded; put promtool at $target" >&2; exit 1; }
dpkg-deb -x prometheus_*.deb tree
mkdir -p "$home/bin"
cp tree/usr/bin/promtool "$target.new.$$"
mv "$target.new.$$" "$target"
"$target" --version > /dev/null 2>&1 || { echo "promtool: the package's promtool does not run here" >&2; exit 1; }
echo "$target"
