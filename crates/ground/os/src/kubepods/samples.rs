//! Container paths of distributions and runtimes, from nodes shown in public issues (shortened ids
//! are padded) and from this project's own node.

/// One container on one node.
pub(super) struct ContainerSample {
    pub(super) node: &'static str,
    /// Name of the mount of the v1 cpuset hierarchy; `None` for v2.
    pub(super) v1: Option<&'static str>,
    pub(super) pod: &'static str,
    /// As in the pod status.
    pub(super) container: &'static str,
    /// Path of the cgroup below the mount.
    pub(super) path: &'static str,
    /// Path of the processes' cgroup below that.
    pub(super) inner: &'static str,
    /// The line of `/proc/PID/cgroup` as seen by a reader in another container.
    pub(super) seen: &'static str,
}

pub(super) const SAMPLES: [ContainerSample; 13] = [
    ContainerSample {
        node: "kubeadm, systemd driver, containerd, v2: a burstable pod",
        v1: None,
        pod: "03f3f104-3215-44f2-9686-d4dd1f05a7ed",
        container: "containerd://09d185410c4e25236cc24717f881589bb0978b24eafd101624e627a4dd8d3439",
        path: "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod03f3f104_3215_44f2_9686_d4dd1f05a7ed.slice/cri-containerd-09d185410c4e25236cc24717f881589bb0978b24eafd101624e627a4dd8d3439.scope",
        inner: "",
        seen: "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod03f3f104_3215_44f2_9686_d4dd1f05a7ed.slice/cri-containerd-09d185410c4e25236cc24717f881589bb0978b24eafd101624e627a4dd8d3439.scope",
    },
    ContainerSample {
        node: "kubeadm, systemd driver, containerd, v2: a guaranteed pod, seen from one of its kind",
        v1: None,
        pod: "5b1d8e35-7d0f-4a43-8d2b-6e0f0d3b6b1c",
        container: "containerd://66be9b2efdf4d85288c319b8c1a2f50d2439b5617e36f45d9d0d0be1381113be",
        path: "kubepods.slice/kubepods-pod5b1d8e35_7d0f_4a43_8d2b_6e0f0d3b6b1c.slice/cri-containerd-66be9b2efdf4d85288c319b8c1a2f50d2439b5617e36f45d9d0d0be1381113be.scope",
        inner: "",
        seen: "0::/../../kubepods-pod5b1d8e35_7d0f_4a43_8d2b_6e0f0d3b6b1c.slice/cri-containerd-66be9b2efdf4d85288c319b8c1a2f50d2439b5617e36f45d9d0d0be1381113be.scope",
    },
    ContainerSample {
        node: "cgroupfs driver, containerd, v1: a burstable pod",
        v1: Some("cpuset"),
        pod: "d7874f44-eee0-423c-83c9-f246075bdde1",
        container: "containerd://fbaa59723cd1f05d310e6f48b5d49a9d9e9552b7fde2205d0a2e2b5f60ec21ba",
        path: "kubepods/burstable/podd7874f44-eee0-423c-83c9-f246075bdde1/fbaa59723cd1f05d310e6f48b5d49a9d9e9552b7fde2205d0a2e2b5f60ec21ba",
        inner: "",
        seen: "6:cpuset:/kubepods/burstable/podd7874f44-eee0-423c-83c9-f246075bdde1/fbaa59723cd1f05d310e6f48b5d49a9d9e9552b7fde2205d0a2e2b5f60ec21ba",
    },
    ContainerSample {
        node: "this project's node, cgroupfs driver, containerd, v1: a guaranteed pod",
        v1: Some("cpuset"),
        pod: "0b4f3a12-95a0-4c27-9a6a-5a1f7c0f0e55",
        container: "containerd://2f7b8d1d4c3a5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7",
        path: "kubepods/pod0b4f3a12-95a0-4c27-9a6a-5a1f7c0f0e55/2f7b8d1d4c3a5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7",
        inner: "",
        seen: "3:cpuset:/../../../pod0b4f3a12-95a0-4c27-9a6a-5a1f7c0f0e55/2f7b8d1d4c3a5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7",
    },
    ContainerSample {
        node: "this project's guest, cgroupfs driver, containerd, v2, seen from a pod of its class",
        v1: None,
        pod: "7c9d1b20-0c1e-4a6f-bf5e-2b1f6f1f8d11",
        container: "containerd://aa7b8d1d4c3a5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7",
        path: "kubepods/besteffort/pod7c9d1b20-0c1e-4a6f-bf5e-2b1f6f1f8d11/aa7b8d1d4c3a5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7",
        inner: "",
        seen: "0::/../../pod7c9d1b20-0c1e-4a6f-bf5e-2b1f6f1f8d11/aa7b8d1d4c3a5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7",
    },
    ContainerSample {
        node: "OpenShift, CRI-O with crun, systemd driver, v2",
        v1: None,
        pod: "a5c1f8d5-1919-434d-add7-4afaafdaef89",
        container: "cri-o://5eed917563583925ffdbd40a64efb2aaffe58638e57add8becaf460fe74f5b1c",
        path: "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda5c1f8d5_1919_434d_add7_4afaafdaef89.slice/crio-5eed917563583925ffdbd40a64efb2aaffe58638e57add8becaf460fe74f5b1c.scope",
        inner: "container",
        seen: "0::/../../../kubepods-burstable.slice/kubepods-burstable-poda5c1f8d5_1919_434d_add7_4afaafdaef89.slice/crio-5eed917563583925ffdbd40a64efb2aaffe58638e57add8becaf460fe74f5b1c.scope/container",
    },
    ContainerSample {
        node: "CRI-O with runc, systemd driver, v1",
        v1: Some("cpuset"),
        pod: "a5c1f8d5-1919-434d-add7-4afaafdaef89",
        container: "cri-o://66d6d4ac9851cfcab8400277ad96770ce52c1d75eeac29046753875056eacaed",
        path: "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda5c1f8d5_1919_434d_add7_4afaafdaef89.slice/crio-66d6d4ac9851cfcab8400277ad96770ce52c1d75eeac29046753875056eacaed.scope",
        inner: "",
        seen: "12:cpuset:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda5c1f8d5_1919_434d_add7_4afaafdaef89.slice/crio-66d6d4ac9851cfcab8400277ad96770ce52c1d75eeac29046753875056eacaed.scope",
    },
    ContainerSample {
        node: "CRI-O, cgroupfs driver, v1, cpuset mounted together with cpu",
        v1: Some("cpu,cpuset"),
        pod: "58662905-8ccc-11e7-a695-c85b76cda386",
        container: "cri-o://1659f887a192f3515dd9b91a41d274abf29ca49de3d2330869131b2d93b45b94",
        path: "kubepods/burstable/pod58662905-8ccc-11e7-a695-c85b76cda386/crio-1659f887a192f3515dd9b91a41d274abf29ca49de3d2330869131b2d93b45b94",
        inner: "",
        seen: "4:cpu,cpuset:/kubepods/burstable/pod58662905-8ccc-11e7-a695-c85b76cda386/crio-1659f887a192f3515dd9b91a41d274abf29ca49de3d2330869131b2d93b45b94",
    },
    ContainerSample {
        node: "kind 0.27, containerd, v2: the slice of the node's kubelet in front of every name",
        v1: None,
        pod: "1e597579-417e-482f-bf65-5fe170c3aebd",
        container: "containerd://a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e",
        path: "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1e597579_417e_482f_bf65_5fe170c3aebd.slice/cri-containerd-a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e.scope",
        inner: "",
        seen: "0::/../../kubelet-kubepods-besteffort-pod1e597579_417e_482f_bf65_5fe170c3aebd.slice/cri-containerd-a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e.scope",
    },
    ContainerSample {
        node: "kind 0.11, containerd, cgroupfs driver, v1: below the node's own container",
        v1: Some("cpuset"),
        pod: "9692aa0e-748e-11e8-8dfa-76d458035df6",
        container: "containerd://c9e786dd55a32bd886310865bcc0846c0e86e18048de28fdcc55eccabba7516b",
        path: "docker/611a8d133d2c636e777745e4dbb1d5866a068fe0f6cc87033e52fe139fca5ba1/kubelet/kubepods/besteffort/pod9692aa0e-748e-11e8-8dfa-76d458035df6/c9e786dd55a32bd886310865bcc0846c0e86e18048de28fdcc55eccabba7516b",
        inner: "",
        seen: "5:cpuset:/docker/611a8d133d2c636e777745e4dbb1d5866a068fe0f6cc87033e52fe139fca5ba1/kubelet/kubepods/besteffort/pod9692aa0e-748e-11e8-8dfa-76d458035df6/c9e786dd55a32bd886310865bcc0846c0e86e18048de28fdcc55eccabba7516b",
    },
    ContainerSample {
        node: "CentOS, cri-dockerd, systemd driver",
        v1: Some("cpuset"),
        pod: "9692aa0e-748e-11e8-8dfa-76d458035df6",
        container: "docker://abddff03dfd7710c79a750ce3e730365cbb2c8247a974170c1062683bc3e9152",
        path: "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod9692aa0e_748e_11e8_8dfa_76d458035df6.slice/docker-abddff03dfd7710c79a750ce3e730365cbb2c8247a974170c1062683bc3e9152.scope",
        inner: "",
        seen: "5:cpuset:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod9692aa0e_748e_11e8_8dfa_76d458035df6.slice/docker-abddff03dfd7710c79a750ce3e730365cbb2c8247a974170c1062683bc3e9152.scope",
    },
    ContainerSample {
        node: "minikube with the docker driver, CRI-O, v1: below the node's own container",
        v1: Some("cpuset"),
        pod: "2cde702b-a0cf-438d-a228-fb164e54434b",
        container: "cri-o://0765f197c9158576f202e50498b488cd0d2b022fb2462b0a629f214bb51cd57d",
        path: "docker/d5d9ee5cf5ec9520d182418b737fb11f3aa6b739e91d7cb6ecd6786f6a2bcbd1/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2cde702b_a0cf_438d_a228_fb164e54434b.slice/crio-0765f197c9158576f202e50498b488cd0d2b022fb2462b0a629f214bb51cd57d.scope",
        inner: "",
        seen: "5:cpuset:/docker/d5d9ee5cf5ec9520d182418b737fb11f3aa6b739e91d7cb6ecd6786f6a2bcbd1/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2cde702b_a0cf_438d_a228_fb164e54434b.slice/crio-0765f197c9158576f202e50498b488cd0d2b022fb2462b0a629f214bb51cd57d.scope",
    },
    ContainerSample {
        node: "k3s without root, v2: below its user's service",
        v1: None,
        pod: "2ca4a155-3599-498d-bb9d-4446693fa3ea",
        container: "containerd://358607a37e7ada357032e7f5729c9ae6a3efdb7962acbcbe47ff6a3c5506cb1c",
        path: "user.slice/user-1000.slice/user@1000.service/k3s/kubepods/burstable/pod2ca4a155-3599-498d-bb9d-4446693fa3ea/358607a37e7ada357032e7f5729c9ae6a3efdb7962acbcbe47ff6a3c5506cb1c",
        inner: "init.scope",
        seen: "0::/../../../burstable/pod2ca4a155-3599-498d-bb9d-4446693fa3ea/358607a37e7ada357032e7f5729c9ae6a3efdb7962acbcbe47ff6a3c5506cb1c/init.scope",
    },
];
