//! Configuration files of the programs of a node.

use std::path::Path;

use super::{NodeNumber, NodeOptions};

/// containerd: its own folders, no system services, no privilege that this machine may lack.
pub(super) fn containerd(folder: &Path, programs: &Path, pause: &str) -> String {
    let (folder, programs) = (folder.display(), programs.display());
    format!(
        r#"version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt",
]
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# A negative score needs CAP_SYS_RESOURCE.
restrict_oom_score_adj = true
disable_apparmor = true
tolerate_missing_hugetlb_controller = true
disable_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{programs}"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#
    )
}

/// Network of pods: a bridge.
pub(super) fn cni(number: NodeNumber) -> String {
    let pods = number.pods();
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "pods", "plugins": [{{
  "type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {{"type": "host-local", "dataDir": "/run/cni", "ranges": [[{{"subnet": "{pods}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}
}}]}}"#
    )
}

/// The kubelet. With half a cpu reserved for the system, a machine of two cpus keeps one whole cpu
/// in the shared pool and 1.5 cpus allocatable.
pub(super) fn kubelet(folder: &Path, authority: &Path, options: &NodeOptions) -> String {
    let (folder, authority) = (folder.display(), authority.display());
    let NodeOptions {
        cpu_manager_policy,
        reserved_cpu,
        ..
    } = options;
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {authority}}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {folder}/kubelet.crt
tlsPrivateKeyFile: {folder}/kubelet.key
containerRuntimeEndpoint: unix://{folder}/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
cpuManagerPolicy: {cpu_manager_policy}
cpuManagerReconcilePeriod: 2s
systemReserved: {{cpu: {reserved_cpu}}}
enforceNodeAllocatable: [pods]
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 4s
runtimeRequestTimeout: 10m
resolvConf: {folder}/resolv.conf
podLogsDir: {folder}/pods
volumePluginDir: {folder}/plugins
oomScoreAdj: 0
"
    )
}

/// kube-proxy in iptables mode; no setting of the machine is changed.
pub(super) fn proxy(folder: &Path, name: &str) -> String {
    let folder = folder.display();
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {{kubeconfig: {folder}/proxy.kubeconfig}}
mode: iptables
clusterCIDR: 10.244.0.0/16
hostnameOverride: {name}
conntrack: {{maxPerCore: 0, min: 0}}
oomScoreAdj: 0
"
    )
}
