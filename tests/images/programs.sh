#!/usr/bin/env bash
# Fetches Debian's containerd, runc and registry and prints the folder with the programs. They are
# unpacked, not installed, so that no service of theirs starts.
set -euo pipefail
# shellcheck source=tests/cached-build.sh
source "$(dirname "$0")/../cached-build.sh"
build() {
    echo "fetching containerd, runc, docker-registry and skopeo (apt-get)"
    mkdir "$folder/packages"
    apt-get update -qq
    # skopeo brings no service; the other two need its libraries and these.
    apt-get install -y -qq --no-install-recommends --no-upgrade skopeo libseccomp2 curl openssl python3
    (cd "$folder/packages" && apt-get download -qq containerd runc docker-registry 2>&1 | grep -v unsandboxed) || true
    for package in containerd runc docker-registry; do
        dpkg-deb -x "$folder/packages/$package"_*.deb "$folder"
    done
    mv "$folder/usr/sbin/runc" "$folder/usr/bin/"
    rm -rf "$folder/packages"
}
cached_build containers
echo "$folder/usr/bin"
