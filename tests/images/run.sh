#!/usr/bin/env bash
# Tests the archives of `make images` with third-party programs: skopeo copies them into a registry
# and back, containerd imports and checks them, runc runs them. Argument: the folder of the
# archives, by default target/images. The programs run in separate namespaces, so that nothing
# remains and no port is occupied.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${ALBACORE_INSIDE:-}" != yes ]; then
    programs=$("$here/programs.sh")
    export PATH=$programs:$PATH ALBACORE_INSIDE=yes
    exec unshare --mount --net --pid --fork --mount-proc --kill-child "$0" "$@"
fi
root=$here/../..
images=$(cd "${1:-$root/target/images}" && pwd)
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

cat >"$work/registry.yaml" <<END
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: 127.0.0.1:5000}
END
docker-registry serve "$work/registry.yaml" >"$work/registry.log" 2>&1 &
wait_for 60 curl -fs http://127.0.0.1:5000/v2/

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
ctr() { command ctr --address /run/containerd.sock --namespace k8s.io "$@"; }
wait_for 60 ctr version

for archive in "$images"/*.tar; do
    name=$(basename "$archive" .tar)
    index=$(tar -xOf "$archive" index.json)
    digest=$(json 'it["manifests"][0]["digest"]' <<<"$index")
    reference=$(json 'it["manifests"][0]["annotations"]["io.containerd.image.name"]' <<<"$index")
    say "$reference@$digest"

    skopeo copy --quiet --preserve-digests --dest-tls-verify=false "oci-archive:$archive" "docker://127.0.0.1:5000/$name:new"
    there=$(skopeo inspect --tls-verify=false --format '{{.Digest}}' "docker://127.0.0.1:5000/$name:new")
    [ "$there" = "$digest" ] || fail "the registry has $there"
    skopeo copy --quiet --preserve-digests --src-tls-verify=false "docker://127.0.0.1:5000/$name@$digest" "dir:$work/back-$name"

    ctr images import --snapshotter native "$archive" >>"$work/import.log"
    ctr images list "name==$reference" | grep -q "$digest" || fail "containerd does not list it"
    ctr images check --snapshotter native "name==$reference" | grep -q 'complete' || fail "containerd misses parts of it"
    # Only the program, which contains no path of the build machine.
    layer=$(ctr content get "$digest" | json 'it["layers"][0]["digest"]')
    files=$(ctr content get "$layer" | tar -tz)
    [ "$(wc -l <<<"$files")" = 1 ] || fail "more files than the program: $files"
    ! ctr content get "$layer" | tar -xOz | grep -aqE "/\.cargo/|/rustup/|$(realpath "$root")/" || fail "a path of the builder's is in it"
    config=$(ctr content get "$(ctr content get "$digest" | json 'it["config"]["digest"]')")
    program=$(json 'it["config"]["Entrypoint"][0]' <<<"$config")

    # It needs no library and no writable path.
    ctr run --rm --snapshotter native --read-only "$reference" "once-$name" "$program" --version >"$work/out.log" 2>&1 ||
        fail "$(cat "$work/out.log")"
    grep -qF "${reference##*:}" "$work/out.log" || fail "$program --version printed $(cat "$work/out.log")"
    echo "   accepted: $(cat "$work/out.log"), user $(json 'it["config"]["User"]' <<<"$config")"
done

say "names are found in an image without libraries"
mkdir "$work/files"
cp "$root/examples/fraud.ubj" "$work/files/"
python3 "$here/names.py" 127.0.0.77 models.albacore.test 8700 "$work/files" >"$work/names.log" 2>&1 &
wait_for 60 curl -fs --output /dev/null http://127.0.0.77:8700/fraud.ubj
# As in a pod, short names are completed. `ctr run --net-host` passes the host's file to containers,
# which is replaced here.
printf 'nameserver 127.0.0.77\nsearch default.svc.cluster.test albacore.test\noptions ndots:5\n' >"$work/resolv.conf"
mount --bind "$work/resolv.conf" /etc/resolv.conf
sum=$(sha256sum "$root/examples/fraud.ubj" | cut -d' ' -f1)
cat >"$work/settings.yaml" <<END
models: [{name: fraud, url: "http://models:8700/fraud.ubj", sha256: $sum}]
batching: {policy: auto, max_rows: 1024}
queue: {max_rows: 65536}
END
mounted() { echo "type=bind,src=$work/$1,dst=$2,options=rbind:ro"; }
ctr run --detach --snapshotter native --net-host --read-only --mount "$(mounted settings.yaml /etc/albacore/settings.yaml)" \
    --log-uri "file://$work/server.log" \
    "$(ctr images list -q | grep /albacore-server:)" server /albacore-server --settings /etc/albacore/settings.yaml
wait_for 60 curl -fs http://127.0.0.1:8080/v2/models/fraud/ready
grep -q '^GET /fraud.ubj models:8700$' "$work/names.log" || fail "the model came from elsewhere"
curl -fs http://127.0.0.1:8080/v2/models/fraud/infer -d "@$root/examples/fraud_request.json" | grep -q '"outputs"' || fail "no answer"
front=$(ctr task list | awk '$1 == "server" {print $2}')
[ "$(awk '/^Uid:/ {print $2}' "/proc/$front/status")" = 65532 ] || fail "it does not run as its user"
ctr task kill --signal SIGTERM server
wait_for 60 sh -c "! test -d /proc/$front"

# A cluster has its own certificate authority; the image has none.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout /dev/null -out "$work/ca.crt" 2>/dev/null
cat >"$work/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://models:8700", certificate-authority-data: $(base64 -w0 "$work/ca.crt")}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: default}}]
current-context: x
END
ctr run --detach --snapshotter native --net-host --read-only --mount "$(mounted kubeconfig /etc/kubeconfig)" \
    --log-uri "file://$work/controller.log" \
    "$(ctr images list -q | grep /albacore-controller:)" controller /albacore-controller --kubeconfig /etc/kubeconfig --server-image x
wait_for 60 grep -qE '^(GET|POST|PUT|PATCH) /apis?' "$work/names.log"
echo "passed"
