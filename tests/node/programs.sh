#!/usr/bin/env bash
# Fetches Debian's containerd, runc and CNI plugins and prints the folder with the programs. They
# are unpacked, not installed, so that no service of theirs starts. Installed are what a node calls
# by name: iptables, ip, mount and nsenter (util-linux).
set -euo pipefail
# shellcheck source=tests/cached-build.sh
source "$(dirname "$0")/../cached-build.sh"
build() {
    echo "fetching containerd, runc and CNI plugins, installing iptables (apt-get)"
    mkdir "$folder/packages" "$folder/bin"
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends --no-upgrade libseccomp2 iptables iproute2 mount util-linux
    (cd "$folder/packages" && apt-get download -qq containerd runc containernetworking-plugins 2>&1 | grep -v unsandboxed) || true
    for package in "$folder"/packages/*.deb; do
        dpkg-deb -x "$package" "$folder/packages"
    done
    for place in bin sbin lib/cni; do
        cp --dereference "$folder/packages/usr/$place"/* "$folder/bin/"
    done
    rm -rf "$folder/packages"
}
cached_build node
echo "$folder/bin"
