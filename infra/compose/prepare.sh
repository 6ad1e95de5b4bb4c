#!/bin/sh
# Makes what other containers find in their volumes: keys of the bus, one user's in each volume, keys of the engine, and directories that
# belong to the user whom services run as. What is there stays. Arguments go to `tiltyard credentials`: `prepare --rotate gateway`.
set -eu
umask 077
tiltyard credentials /keys --host nats --mount /etc/nats/security "$@"
for name in api-key admin-key; do
    [ -s "/keys/engine/$name" ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "/keys/engine/$name"
done
chown -R 10001:10001 /keys/server /keys/users /keys/engine
chown 10001:10001 /volumes/*
chmod -R g+rX /keys/users/sandbox  # root without its powers, but in the group
chmod 2775 /volumes/blobs          # written by the sandbox as well, which is another user
