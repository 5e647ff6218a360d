#!/usr/bin/env bash
# Fetches Debian's containerd, runc and CNI plugins and prints the folder with the programs. They
# are unpacked, not installed, so that no service of theirs starts. The folder lies under
# ~/.cache/albacore. Installed are what a node calls by name: iptables, ip, mount and nsenter
# (util-linux).
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
folder=$cache/node-$(sha256sum "$0" | cut -c1-12)
mkdir -p "$cache"
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    echo "fetching containerd, runc and CNI plugins, installing iptables (apt-get)" >&2
    rm -rf "$folder"
    mkdir -p "$folder/packages" "$folder/bin"
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends --no-upgrade libseccomp2 iptables iproute2 mount util-linux >&2
    (cd "$folder/packages" && apt-get download -qq containerd runc containernetworking-plugins 2>&1 | grep -v unsandboxed >&2) || true
    for package in "$folder"/packages/*.deb; do
        dpkg-deb -x "$package" "$folder/packages"
    done
    for place in bin sbin lib/cni; do
        cp --dereference "$folder/packages/usr/$place"/* "$folder/bin/"
    done
    rm -rf "$folder/packages"
    touch "$folder/complete"
fi
echo "$folder/bin"
