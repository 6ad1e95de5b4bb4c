#!/usr/bin/env bash
# Build the root file system of a sandbox profile, and print its directory on the last line.
#
# `image.sh python` makes $TILTYARD_HOME/images/python-<hash of the recipe> from the host's own distribution and mirror
# with mmdebstrap or debootstrap, trims it, pre-creates the mount points and renames it into place: it is there whole or
# not at all. The recipe is the suite, the package list and this file; a second call takes milliseconds.
set -euo pipefail

home=${TILTYARD_HOME:-$HOME/.cache/tiltyard}
profile=${1:-python}
work=

fail() { echo "image: $1" >&2; exit 1; }
# shellcheck disable=SC2317  # called by the trap
cleanup() { if [ -n "$work" ]; then rm -rf "$work"; fi; }
trap cleanup EXIT

case $profile in
    python) packages=python3,coreutils,bash,grep,sed,gawk,findutils,diffutils,tar,gzip,jq ;;
    *) fail "no recipe for profile '$profile'; the recipes are in $0" ;;
esac

# shellcheck source=/dev/null
. /etc/os-release
suite=${IMAGE_SUITE:-${VERSION_CODENAME:-}}
[ -n "$suite" ] || fail "can't tell the distribution's suite; set IMAGE_SUITE, for example bookworm"
recipe=$( (echo "$profile $suite $packages"; cat "$0") | sha256sum | cut -c1-12)
target=$home/images/$profile-$recipe
if [ -d "$target" ]; then echo "$target"; exit 0; fi

[ "$(id -u)" = 0 ] || fail "building a root file system needs root; run it as root or under sudo"
mkdir -p "$home/images"
free=$(df -Pk "$home/images" | awk 'NR == 2 { print $4 }')
[ "$free" -gt 1500000 ] || fail "1.5 GB of free disk are needed under $home/images; free some or set TILTYARD_HOME"

if ! command -v mmdebstrap > /dev/null && ! command -v debootstrap > /dev/null; then
    command -v apt-get > /dev/null || fail "neither mmdebstrap nor debootstrap is here; install one of them"
    apt-get -qq update > /dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install mmdebstrap > /dev/null 2>&1 \
        || fail "could not install mmdebstrap; install mmdebstrap or debootstrap by hand"
fi

mirror=$(grep -rhoE 'https?://[^ ]+' /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources \
    /etc/apt/sources.list.d/ubuntu.sources 2>/dev/null | grep -vE 'security|snapshot' | head -n 1 || true)
case ${ID:-} in
    ubuntu) mirror=${IMAGE_MIRROR:-${mirror:-http://archive.ubuntu.com/ubuntu}} components=main,universe ;;
    *) mirror=${IMAGE_MIRROR:-${mirror:-http://deb.debian.org/debian}} components=main ;;
esac

echo "set-up: building the sandbox image $profile (about a minute)" >&2
work=$(mktemp -d "$home/images/.build-XXXXXX")
root=$work/root
log=$work/log
if command -v mmdebstrap > /dev/null; then
    mmdebstrap --quiet --mode=root --variant=minbase --format=directory --components="$components" --include="$packages" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root" "$mirror" > "$log" 2>&1 || built=no
else
    debootstrap --variant=minbase --components="$components" --include="$packages" "$suite" "$root" "$mirror" > "$log" 2>&1 || built=no
fi
[ "${built:-yes}" = yes ] || fail "no root file system from $mirror ($(grep -E '^(E|W):' "$log" | tail -n 1)); set IMAGE_MIRROR to a reachable mirror"

rm -rf "$root"/usr/share/{doc,man,info,locale,lintian} "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/var/log/* \
    "$root"/tmp/* "$root"/root/.[a-z]* "$root"/etc/{hostname,resolv.conf,machine-id}
mkdir -p "$root"/{workspace,tmp,proc,dev,sys,run,tiltyard} "$root"/var/cache "$root"/var/log
echo 'user:x:1000:1000::/workspace:/bin/bash' >> "$root/etc/passwd"
echo 'user:x:1000:' >> "$root/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$root/etc/hosts"
# Byte code of the whole standard library, checked by nothing at run time: a start in the sandbox reads less.
chroot "$root" python3 -m compileall -q -j 1 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.* > /dev/null 2>&1 || true
for need in bin/bash bin/ls usr/bin/python3 usr/bin/awk; do
    [ -e "$root/$need" ] || fail "the built root file system lacks /$need; see the recipe in $0"
done
mv -T "$root" "$target" 2>/dev/null || [ -d "$target" ] || fail "could not move the new root file system to $target"
echo "$target"
