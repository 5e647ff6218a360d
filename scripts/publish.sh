#!/usr/bin/env bash
# Pushes images, and the chart if present, to a registry: publish.sh REGISTRY [FOLDER]. FOLDER is
# target/dist, the output of `make release`, or target/images. Log in first: `skopeo login`, `helm
# registry login`. Set ALBACORE_PLAIN_HTTP=1 for a registry without TLS.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
registry=${1:?usage: publish.sh REGISTRY [FOLDER]}
folder=${2:-$root/target/dist}
for program in skopeo python3; do
    command -v "$program" >/dev/null || {
        echo "$program is missing: install it by your package manager" >&2
        exit 1
    }
done
images=("$folder"/albacore-*.tar)
[ -f "${images[0]}" ] || {
    echo "$folder has no images: run \`make release\` or \`make images\`" >&2
    exit 1
}
skopeo_options=() helm_options=()
if [ "${ALBACORE_PLAIN_HTTP:-}" = 1 ]; then
    skopeo_options=(--dest-tls-verify=false)
    helm_options=(--plain-http)
fi
for image in "${images[@]}"; do
    name=$(basename "$image" .tar)
    tag=$(tar -xOf "$image" index.json | python3 -c \
        'import json, sys; print(json.load(sys.stdin)["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"])')
    skopeo copy --quiet --all --preserve-digests "${skopeo_options[@]}" "oci-archive:$image" "docker://$registry/$name:$tag"
    echo "pushed $registry/$name:$tag"
done
for chart in "$folder"/albacore-*.tgz; do
    [ ! -f "$chart" ] || helm push "${helm_options[@]}" "$chart" "oci://$registry/charts"
done
