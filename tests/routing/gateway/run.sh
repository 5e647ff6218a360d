#!/usr/bin/env bash
# run.sh CERTIFICATES COMMAND...: runs the command with the folder CERTIFICATES as /certs, where
# Envoy Gateway expects the certificates of its xDS server. Its root is a tmpfs with the folders of
# this machine, in a mount namespace, so that nothing is created in the root of the machine. It is
# mounted beside CERTIFICATES.
set -euo pipefail
if [ "${1:-}" != inside ]; then
    exec unshare --mount "$0" inside "$@"
fi
certificates=$2
shift 2
root=$(dirname "$certificates")/root
mkdir "$root"
mount -t tmpfs tmpfs "$root"
for entry in /*; do
    if [ -L "$entry" ]; then
        cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ]; then
        mkdir "$root$entry"
        mount --rbind "$entry" "$root$entry"
    fi
done
mkdir "$root/certs"
mount --bind "$certificates" "$root/certs"
exec chroot "$root" "$@"
