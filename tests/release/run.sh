#!/usr/bin/env bash
# Tests the output of `make release` as its users consume it: checksums, provenance, programs of
# both architectures, krew, a registry, the bundle for OLM, containerd, helm and Docker Compose.
# Argument: the folder, by default target/dist. The programs run in separate namespaces, so that
# nothing remains.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ "${ALBACORE_INSIDE:-}" != yes ]; then
    if ! command -v qemu-aarch64 >/dev/null; then
        apt-get update -qq >&2
        apt-get install -y -qq qemu-user >&2
    fi
    PATH=$("$here/programs.sh"):$("$root/tests/images/programs.sh"):$("$root/tests/cluster/build.sh"):$PATH
    export PATH ALBACORE_INSIDE=yes
    exec unshare --mount --net --pid --fork --mount-proc --kill-child "$0" "$@"
fi
dist=$(cd "${1:-$root/target/dist}" && pwd)
work=$(mktemp -d)
mount -t tmpfs none "$work"
mount -t tmpfs none /run
ip link set lo up
leave() {
    local code=$?
    [ $code = 0 ] || tail -n 15 "$work"/*.log >&2
    umount -l "$work"
    rmdir "$work"
    exit $code
}
trap leave EXIT

say() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
# wait_for SECONDS COMMAND...: waits until the command succeeds.
wait_for() {
    local seconds=$1; shift
    for _ in $(seq $((seconds * 10))); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    fail "after $seconds s still not: $*"
}
json() { python3 -c 'import json, sys; print(eval(sys.argv[1], {"it": json.load(sys.stdin)}))' "$1"; }

say "checksums and provenance"
(cd "$dist" && sha256sum --check --quiet --strict SHA256SUMS)
listed=$(cut -d' ' -f3 "$dist/SHA256SUMS" | sort)
[ "$listed" = "$(cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort)" ] || fail "a file has no checksum"
version=$(basename "$dist"/albacore-*.tgz .tgz)
version=${version#albacore-}
statement=$dist/albacore-$version.provenance.json
commit=$(json 'it["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"]' <"$statement")
git -C "$root" cat-file -e "$commit" || fail "the statement names the commit $commit"
while read -r sum name; do
    [ "$name" = "$(basename "$statement")" ] || grep -qF "$sum" "$statement" || fail "the statement lacks $name"
done <"$dist/SHA256SUMS"

say "programs of both architectures predict the same"
for arch in amd64 arm64; do
    mkdir "$work/$arch"
    tar -xzf "$dist/albacore-$version-linux-$arch.tar.gz" -C "$work/$arch"
done
case $(uname -m) in
    x86_64) native=amd64 foreign=arm64 qemu=qemu-aarch64 ;;
    *) fail "this test runs on x86_64" ;;
esac
for program in albacore albacore-lab albacore-server albacore-params; do
    for command in "$work/$native/$program" "$qemu $work/$foreign/$program"; do
        $command --version | grep -qF "$version" || fail "$command --version"
    done
done
"$work/$native/albacore" predict --model "$root/examples/fraud.ubj" --data "$root/examples/fraud_rows.npy" --output "$work/$native.npy"
"$qemu" "$work/$foreign/albacore" predict --model "$root/examples/fraud.ubj" --data "$root/examples/fraud_rows.npy" --output "$work/$foreign.npy"
cmp "$work/$native.npy" "$work/$foreign.npy"

say "krew installs kubectl albacore"
export KREW_ROOT=$work/krew
krew install --manifest="$dist/krew.yaml" --archive="$dist/albacore-$version-linux-$native.tar.gz" >"$work/krew.log" 2>&1
PATH=$KREW_ROOT/bin:$PATH kubectl albacore --version | grep -qF "$version" || fail "kubectl does not find the plugin"

say "a registry takes images and chart"
cat >"$work/registry.yaml" <<END
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: 127.0.0.1:5000}
END
docker-registry serve "$work/registry.yaml" >"$work/registry.log" 2>&1 &
wait_for 60 curl -fs http://127.0.0.1:5000/v2/
export HELM_CONFIG_HOME=$work/helm HELM_CACHE_HOME=$work/helm HELM_DATA_HOME=$work/helm KUBECONFIG=/dev/null
ALBACORE_PLAIN_HTTP=1 "$root/scripts/publish.sh" 127.0.0.1:5000/albacore "$dist"
for archive in "$dist"/albacore-*.tar; do
    name=$(basename "$archive" .tar)
    index=$(skopeo inspect --tls-verify=false --raw "docker://127.0.0.1:5000/albacore/$name:$version")
    architectures=$(json '",".join(m["platform"]["architecture"] for m in it["manifests"])' <<<"$index")
    [ "$architectures" = amd64,arm64 ] || fail "$name is for $architectures"
    digest=$(skopeo inspect --tls-verify=false --raw "docker://127.0.0.1:5000/albacore/$name:$version" | sha256sum | cut -d' ' -f1)
    grep -qF "$digest" "$statement" || fail "the statement lacks the image $name"
done
helm pull --plain-http oci://127.0.0.1:5000/albacore/charts/albacore --version "$version" --destination "$work" >"$work/helm.log"
helm template albacore "$work/albacore-$version.tgz" --kube-version 1.30.0 >"$work/rendered.yaml"
grep -qF "albacore-server:$version" "$work/rendered.yaml" || fail "the chart names another image"

say "the bundle for OLM names the images of the release"
mkdir "$work/bundle" "$work/pulled"
tar -xzf "$dist/albacore-$version-olm-bundle.tar.gz" -C "$work/bundle"
for name in agent controller params server; do
    digest=$(skopeo inspect --tls-verify=false --raw "docker://127.0.0.1:5000/albacore/albacore-$name:$version" | sha256sum | cut -d' ' -f1)
    grep -qF "albacore-$name@sha256:$digest" "$work/bundle/manifests/albacore.clusterserviceversion.yaml" || fail "the bundle names another image of $name"
done
skopeo copy --quiet --src-tls-verify=false "docker://127.0.0.1:5000/albacore/albacore-olm-bundle:$version" "dir:$work/layers"
tar -xzf "$work/layers/$(json 'it["layers"][0]["digest"].split(":")[1]' <"$work/layers/manifest.json")" -C "$work/pulled"
diff -r "$work/bundle" "$work/pulled"

say "containerd takes the image of its own architecture"
cat >"$work/containerd.toml" <<END
version = 2
root = "$work/containerd/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[debug]
level = "error"
[grpc]
address = "/run/containerd.sock"
END
containerd --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
ctr() { command ctr --address /run/containerd.sock "$@"; }
wait_for 60 ctr version
ctr images pull --plain-http --snapshotter native "127.0.0.1:5000/albacore/albacore-server:$version" >"$work/pull.log"
ctr run --rm --snapshotter native --read-only "127.0.0.1:5000/albacore/albacore-server:$version" once /albacore-server --version >"$work/out.log" 2>&1
grep -qF "$version" "$work/out.log" || fail "the server printed $(cat "$work/out.log")"

say "Docker Compose serves the example"
dockerd --data-root "$work/docker" --storage-driver vfs --iptables=false --ip-masq=false >"$work/dockerd.log" 2>&1 &
wait_for 60 docker version
reference=$(grep -o 'registry[^ ]*albacore-experiment:[^ ]*' "$root/examples/compose.yaml")
[ "${reference##*:}" = "$version" ] || fail "examples/compose.yaml has $reference"
docker pull --quiet "127.0.0.1:5000/albacore/albacore-experiment:$version" >>"$work/pull.log"
docker tag "127.0.0.1:5000/albacore/albacore-experiment:$version" "$reference"
compose() { docker-compose --file "$root/examples/compose.yaml" "$@"; }
compose up --detach >"$work/compose.log" 2>&1
wait_for 60 curl -fs http://127.0.0.1:8080/v2/models/fraud/ready
curl -fs http://127.0.0.1:8080/v2/models/fraud/infer -d "@$root/examples/fraud_request.json" | grep -q '"outputs"' || fail "no answer"
is_placed() { compose logs --no-color fraud | grep -q '"event":"pinned"'; }
wait_for 60 is_placed
compose down >>"$work/compose.log" 2>&1

say "GitHub's workflows are valid"
(cd "$root" && actionlint)
echo "passed"
