//! The cgroup paths of pods and containers, by kubelet and container runtime.
//!
//! By the kubelet's cgroup driver:
//! - cgroupfs: pod `kubepods[/burstable or besteffort]/pod<uid>`, container `<id>`, `crio-<id>`;
//! - systemd: pod
//!   `kubepods.slice[/kubepods-burstable.slice]/kubepods-burstable-pod<uid, _ for ->.slice`,
//!   container `cri-containerd-<id>.scope`, `crio-<id>.scope`, `docker-<id>.scope`,
//!   `libpod-<id>.scope`.
//!
//! Guaranteed pods have no QoS directory. A kubelet whose cgroup root is not `/` (kind) prefixes
//! the names of all its slices with that root:
//! `kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice`.

use std::path::{Path, PathBuf};

use super::{KubepodsError, subdirectories};
use crate::OsError;
use crate::limits::CONTAINER_ID_BYTES_MAX;

/// QoS classes with their own directory.
const CLASSES: [&str; 2] = ["burstable", "besteffort"];

/// Prefix and suffix around a container id.
const ID_AFFIXES: [(&str, &str); 6] = [
    ("", ""),
    ("crio-", ""),
    ("cri-containerd-", ".scope"),
    ("crio-", ".scope"),
    ("docker-", ".scope"),
    ("libpod-", ".scope"),
];

/// The validated ids of a container; neither can contain a path separator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ContainerNames {
    pod: String,
    container: String,
}

impl ContainerNames {
    pub(super) fn new(pod: &str, container: &str) -> Result<Self, KubepodsError> {
        let is_uid = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let bad = |id: &str, expected| KubepodsError::BadId {
            id: id.chars().take(CONTAINER_ID_BYTES_MAX).collect(),
            expected,
        };
        if pod.is_empty() || pod.len() > CONTAINER_ID_BYTES_MAX || !pod.chars().all(is_uid) {
            return Err(bad(pod, "the uid of a pod (letters, digits and hyphens)"));
        }
        let id = container
            .split_once("://")
            .map_or(container, |(_runtime, id)| id);
        let is_long_enough = (12..=CONTAINER_ID_BYTES_MAX).contains(&id.len());
        if !is_long_enough || !id.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(bad(
                container,
                "the id of a container (12 to 128 letters and digits)",
            ));
        }
        Ok(Self {
            pod: pod.to_owned(),
            container: id.to_owned(),
        })
    }

    /// All possible paths of the container below a kubelet's directory.
    pub(super) fn paths(&self, kubepods: &Path) -> Vec<PathBuf> {
        let mut pods = Vec::new();
        for class in [None, Some(CLASSES[0]), Some(CLASSES[1])] {
            let directory = class.map_or(kubepods.to_owned(), |class| class_of(kubepods, class));
            pods.push(directory.join(self.pod_name(slice_prefix(&directory))));
        }
        let containers = self.container_names();
        pods.iter()
            .flat_map(|pod| containers.iter().map(move |name| pod.join(name)))
            .collect()
    }

    fn pod_name(&self, prefix: Option<&str>) -> String {
        match prefix {
            Some(prefix) => format!("{prefix}-pod{}.slice", self.pod.replace('-', "_")),
            None => format!("pod{}", self.pod),
        }
    }

    fn container_names(&self) -> Vec<String> {
        let name = |(before, after): &(&str, &str)| format!("{before}{}{after}", self.container);
        ID_AFFIXES.iter().map(name).collect()
    }

    /// True if a path of `/proc/PID/cgroup` is that of this container or a descendant, in any
    /// cgroup namespace: exactly one component looks like a pod, it is this pod at a valid
    /// position, and the container is the next component.
    pub(super) fn is_in(&self, path: &str) -> bool {
        let parts: Vec<&str> = path
            .split('/')
            .filter(|part| !part.is_empty() && *part != "..")
            .collect();
        let mut pods = (0..parts.len()).filter(|&i| is_pod_name(parts[i]));
        let (Some(pod), None) = (pods.next(), pods.next()) else {
            return false;
        };
        let above = pod.checked_sub(1).map(|i| parts[i]);
        let is_placed = above.is_none_or(|above| {
            CLASSES.contains(&above)
                || above == "kubepods"
                || above.strip_suffix(".slice").is_some_and(|prefix| {
                    ["kubepods", "kubepods-burstable", "kubepods-besteffort"]
                        .iter()
                        .any(|end| prefix == *end || prefix.ends_with(&format!("-{end}")))
                })
        });
        let prefix = above.and_then(|above| above.strip_suffix(".slice"));
        let is_pod = match prefix {
            Some(prefix) => parts[pod] == self.pod_name(Some(prefix)),
            // Without a parent component, the pod slice's own prefix is used.
            None => {
                parts[pod] == self.pod_name(None)
                    || (above.is_none()
                        && pod_prefix(parts[pod])
                            .is_some_and(|own| parts[pod] == self.pod_name(Some(own))))
            }
        };
        let container = parts.get(pod + 1);
        is_placed
            && is_pod
            && container.is_some_and(|name| self.container_names().iter().any(|own| own == name))
    }
}

/// True if a directory is a kubelet's pod directory. The name of a slice starts with the name of
/// its parent slice.
pub(super) fn is_kubepods(directory: &Path, mount: &Path) -> bool {
    let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    let parent = directory.parent().filter(|parent| *parent != mount);
    match parent.and_then(slice_prefix) {
        Some(prefix) => name == format!("{prefix}-kubepods.slice"),
        None => name == "kubepods" || name == "kubepods.slice",
    }
}

/// `kubepods-burstable` for `.../kubepods-burstable.slice`; `None` if the directory is not a slice.
fn slice_prefix(directory: &Path) -> Option<&str> {
    directory.file_name()?.to_str()?.strip_suffix(".slice")
}

fn class_of(kubepods: &Path, class: &str) -> PathBuf {
    match slice_prefix(kubepods) {
        Some(prefix) => kubepods.join(format!("{prefix}-{class}.slice")),
        None => kubepods.join(class),
    }
}

/// `kubepods-burstable` for `kubepods-burstable-pod5e_2f.slice`.
fn pod_prefix(name: &str) -> Option<&str> {
    let (prefix, uid) = name.strip_suffix(".slice")?.rsplit_once("-pod")?;
    (!uid.is_empty() && prefix.contains("kubepods")).then_some(prefix)
}

/// True for every possible pod directory name of either driver.
fn is_pod_name(name: &str) -> bool {
    let has_uid = |uid: &str| uid.starts_with(|c: char| c.is_ascii_hexdigit());
    name.strip_prefix("pod").is_some_and(has_uid) || pod_prefix(name).is_some()
}

/// The directories of all pods below a kubelet's directory.
pub(super) fn pods_in(kubepods: &Path) -> Result<Vec<PathBuf>, OsError> {
    let mut pods = Vec::new();
    let classes = CLASSES.iter().map(|class| class_of(kubepods, class));
    for directory in std::iter::once(kubepods.to_owned()).chain(classes) {
        let prefix = slice_prefix(&directory).map(|prefix| format!("{prefix}-pod"));
        let prefix = prefix.as_deref().unwrap_or("pod");
        let is_pod = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        };
        pods.extend(subdirectories(&directory)?.into_iter().filter(is_pod));
    }
    Ok(pods)
}

/// True if a directory in a pod's directory is named like a container (not `crio-conmon-...`, the
/// monitor processes of CRI-O).
pub(super) fn is_container(directory: &Path) -> bool {
    let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    ID_AFFIXES.iter().any(|(before, after)| {
        let id = name
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after));
        id.is_some_and(|id| id.len() >= 12 && id.chars().all(|c| c.is_ascii_alphanumeric()))
    })
}
