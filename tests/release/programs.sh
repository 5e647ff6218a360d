#!/usr/bin/env bash
# Builds krew, which installs plugins of kubectl, and actionlint, which reads GitHub's workflows,
# from their Go modules, fetches Debian's Docker, and prints the folder with them. It lies under
# ~/.cache/albacore. Docker is unpacked, not installed, so that no service starts.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
folder=$cache/release-$(sha256sum "$0" | cut -c1-12)
mkdir -p "$cache"
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    PATH=$("$here/../go-env.sh")
    echo "building krew and actionlint into $folder (once)" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    export CGO_ENABLED=0 GOBIN=$folder
    for program in sigs.k8s.io/krew/cmd/krew@v0.5.0 github.com/rhysd/actionlint/cmd/actionlint@v1.7.7; do
        go install -trimpath "$program" >&2
    done
    apt-get update -qq >&2
    # It has no service; Docker needs the libraries.
    apt-get install -y -qq --no-install-recommends docker-compose libdevmapper1.02.1 libsystemd0 >&2
    (cd "$folder" && apt-get download -qq docker.io 2>&1 | grep -v unsandboxed >&2) || true
    dpkg-deb -x "$folder"/docker.io_*.deb "$folder/unpacked"
    mv "$folder"/unpacked/usr/*bin/* "$folder"
    rm -rf "$folder/unpacked" "$folder"/*.deb
    touch "$folder/complete"
fi
echo "$folder"
