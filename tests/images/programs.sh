#!/usr/bin/env bash
# Fetches Debian's containerd, runc and registry and prints the folder with the programs. They are
# unpacked, not installed, so that no service of theirs starts. The folder lies under
# ~/.cache/albacore.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
folder=$cache/containers-$(sha256sum "$0" | cut -c1-12)
mkdir -p "$cache"
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    echo "fetching containerd, runc, docker-registry and skopeo (apt-get)" >&2
    rm -rf "$folder"
    mkdir -p "$folder/packages"
    apt-get update -qq >&2
    # skopeo brings no service; the other two need its libraries and these.
    apt-get install -y -qq --no-install-recommends --no-upgrade skopeo libseccomp2 curl openssl python3 >&2
    (cd "$folder/packages" && apt-get download -qq containerd runc docker-registry 2>&1 | grep -v unsandboxed >&2) || true
    for package in containerd runc docker-registry; do
        dpkg-deb -x "$folder/packages/$package"_*.deb "$folder"
    done
    mv "$folder/usr/sbin/runc" "$folder/usr/bin/"
    rm -rf "$folder/packages"
    touch "$folder/complete"
fi
echo "$folder/usr/bin"
