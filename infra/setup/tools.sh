#!/usr/bin/env bash
# Install programs that some tests and back-ends need, where they are missing: `tools.sh bwrap:bubblewrap ...`
# (program:package). Only missing ones are looked at; a second call takes milliseconds. No service is started.
set -euo pipefail

fail() { echo "tools: $1" >&2; exit 1; }

missing=()
for pair in "$@"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" > /dev/null || missing+=("${pair#*:}")
done
[ "${#missing[@]}" -gt 0 ] || exit 0
command -v apt-get > /dev/null || fail "${missing[*]} missing; install by hand"
[ "$(id -u)" = 0 ] || fail "${missing[*]} missing; run as root or under sudo to install"
apt-get -qq update > /dev/null 2>&1 || true
# RUNLEVEL=1 keeps packages from starting their services.
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 --no-install-recommends install "${missing[@]}" \
    > /dev/null 2>&1 || fail "could not install ${missing[*]}; install by hand"
