#!/usr/bin/env bash
# Get a gVisor runtime (runsc) that works here, and print its path on the last line.
#
# Order: the one named by TILTYARD_SANDBOX__RUNSC, the one installed by an earlier call, the one on the PATH, gVisor's own release,
# then Debian's packages (bookworm-backports first: the package in Debian 12 main can't run `ls`). Each candidate must
# pass the same self-test by behaviour; version strings aren't looked at. It is a first sieve that needs no image; the
# whole self-test is `tiltyard sandbox doctor`. Nothing outside TILTYARD_HOME is changed.
set -euo pipefail

home=${TILTYARD_HOME:-$HOME/.cache/tiltyard}
platform=${TILTYARD_SANDBOX__PLATFORM:-systrap}
if [ "$platform" = auto ]; then platform=systrap; fi
mirror=${GVISOR_URL:-https://storage.googleapis.com/gvisor/releases/release/latest}
target=$home/bin/runsc
work=

fail() { echo "runsc: $1" >&2; exit 1; }
say() { echo "set-up: $1" >&2; }
# shellcheck disable=SC2317  # called by the trap
cleanup() { if [ -n "$work" ]; then rm -rf "$work"; fi; }
trap cleanup EXIT

# True when `ls`, `stat` and a shell work in it, three times over (some builds crash at random).
passes() {
    local binary=$1 _
    [ -x "$binary" ] || return 1
    for _ in 1 2 3; do
        [ "$(timeout 20 "$binary" --network=none --ignore-cgroups --platform="$platform" "do" \
            /bin/sh -c 'ls -d /usr && stat -c %F /usr && echo end' 2>/dev/null | tr '\n' ' ')" = "/usr directory end " ] || return 1
    done
}

use() { echo "$1"; exit 0; }

install_from() {
    mkdir -p "$home/bin"
    cp "$1" "$target.new.$$"
    chmod 0755 "$target.new.$$"
    mv "$target.new.$$" "$target"
    use "$target"
}

from_release() {
    local arch url file=$work/runsc
    arch=$(uname -m)
    url=$mirror/$arch
    curl -fsS --connect-timeout 4 --max-time 180 -o "$file" "$url/runsc" 2>/dev/null || return 1
    curl -fsS --connect-timeout 4 --max-time 20 -o "$file.sha512" "$url/runsc.sha512" 2>/dev/null || return 1
    [ "$(cut -d' ' -f1 "$file.sha512")" = "$(sha512sum "$file" | cut -d' ' -f1)" ] || fail "the release's checksum is wrong; try again"
    chmod 0755 "$file"
    passes "$file" && install_from "$file"
}

# "URI KEYRING" of the first Debian or Ubuntu archive the host uses; the keyring may be empty.
host_archive() {
    # shellcheck disable=SC2046  # names without blanks
    awk '
        function flush() { if (uri != "" && uri !~ /security/ && comps ~ /main/) { print uri, key; found = 1; exit }; uri = key = comps = "" }
        FILENAME ~ /\.sources$/ && /^[ \t]*$/ { flush(); next }
        FILENAME ~ /\.sources$/ && /^URIs:/ { uri = $2 }
        FILENAME ~ /\.sources$/ && /^Signed-By:/ { key = $2 }
        FILENAME ~ /\.sources$/ && /^Components:/ { comps = $0 }
        FILENAME ~ /\.list$/ && $1 == "deb" {
            key = ""
            if (match($0, /signed-by=[^] ]+/)) key = substr($0, RSTART + 10, RLENGTH - 10)
            line = $0; sub(/\[[^]]*\]/, "", line); split(line, part, /[ \t]+/)
            uri = part[2]; comps = line; flush()
        }
        END { if (!found) flush() }
    ' $(ls /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources /etc/apt/sources.list 2>/dev/null) 2>/dev/null
}

from_suite() {
    local suite=$1 uri key apt=$work/apt
    read -r uri key < <(host_archive) || return 1
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb ${key:+[signed-by=$key]} $uri $suite $2" > "$apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root
        -o Acquire::http::Timeout=20 -o Acquire::Retries=1)
    apt-get "${options[@]}" update > /dev/null 2>&1 || return 1
    (cd "$apt" && apt-get "${options[@]}" download "runsc/$suite" > /dev/null 2>&1) || return 1
    dpkg-deb -x "$apt"/runsc_*.deb "$apt/tree"
    passes "$apt/tree/usr/bin/runsc" && install_from "$apt/tree/usr/bin/runsc"
}

if [ -n "${TILTYARD_SANDBOX__RUNSC:-}" ]; then
    passes "$TILTYARD_SANDBOX__RUNSC" && use "$TILTYARD_SANDBOX__RUNSC"
    fail "$TILTYARD_SANDBOX__RUNSC fails the self-test (ls and stat inside a sandbox); unset TILTYARD_SANDBOX__RUNSC to have one fetched"
fi
[ "$(id -u)" = 0 ] || fail "gVisor with limits needs root; run it as root or under sudo"
for candidate in "$target" "$(command -v runsc || true)"; do
    if [ -n "$candidate" ] && passes "$candidate"; then use "$candidate"; fi
done
work=$(mktemp -d)
say "getting gVisor's runsc"
from_release || true
if command -v apt-get > /dev/null; then
    # shellcheck source=/dev/null
    . /etc/os-release
    if [ "${ID:-}" = debian ]; then from_suite bookworm-backports main || true; fi
    from_suite "${VERSION_CODENAME:-stable}" "main $([ "${ID:-}" = ubuntu ] && echo universe)" || true
fi
fail "no working runsc here: neither $mirror nor a package that passes the self-test; put one at $target or set TILTYARD_SANDBOX__RUNSC"
