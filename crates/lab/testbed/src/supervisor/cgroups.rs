//! Cgroups of a node: one below the supervisor's own in every hierarchy. In a cgroup namespace they
//! appear as the roots, so that the kubelet creates `/kubepods` there and can neither see nor
//! change cgroups of other processes.

use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// Arguments of `mount -t KIND -o OPTIONS KIND TARGET`.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Mount {
    pub(crate) kind: String,
    pub(crate) options: String,
    pub(crate) target: PathBuf,
}

/// A cgroup of the node.
struct Cgroup {
    hierarchy: Mount,
    parent: PathBuf,
    directory: PathBuf,
}

/// One cgroup in every hierarchy of cgroup v1, and one in that of v2.
pub(crate) struct Cgroups(Vec<Cgroup>);

impl Cgroups {
    /// Creates a cgroup `name` below the caller's own in every hierarchy; removes those of
    /// supervisors that were killed.
    pub(crate) fn make(name: &str) -> Result<Self> {
        let mounted = read("/proc/self/mounts")?;
        let mounted: Vec<Mount> = mounted.lines().filter_map(parse_mount).collect();
        let own = read("/proc/self/cgroup")?;
        let mut cgroups = Vec::new();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let Some(hierarchy) = find(&mounted, controllers) else {
                continue;
            };
            let parent = hierarchy.target.join(path.trim_start_matches('/'));
            let directory = parent.join(name);
            remove_stale(&parent);
            std::fs::create_dir(&directory).map_err(|error| named(&directory, &error))?;
            if controllers.split(',').any(|c| c == "cpuset") {
                // A new v1 cpuset is empty, so no process can run in it.
                for (file, source) in [
                    ("cpuset.cpus", "cpuset.effective_cpus"),
                    ("cpuset.mems", "cpuset.effective_mems"),
                ] {
                    std::fs::write(directory.join(file), std::fs::read(parent.join(source))?)?;
                }
            }
            cgroups.push(Cgroup {
                hierarchy: hierarchy.clone(),
                parent,
                directory,
            });
        }
        if !cgroups
            .iter()
            .any(|c| c.hierarchy.options.contains("cpuset"))
        {
            return Err(Error::other(
                "this machine has no cpuset hierarchy of cgroup v1, and nodes of tests need one: \
                 boot with systemd.unified_cgroup_hierarchy=0, or run `make bignode`, which brings a kernel of its own",
            ));
        }
        Ok(Self(cgroups))
    }

    /// Mounts of the node, in order.
    pub(crate) fn mounts(&self) -> Vec<Mount> {
        self.0.iter().map(|c| c.hierarchy.clone()).collect()
    }

    /// Moves this process, and so its future children, into them.
    pub(crate) fn enter(&self) -> Result<()> {
        self.0.iter().try_for_each(|c| move_to(&c.directory))
    }

    /// Moves this process back to the parents.
    pub(crate) fn leave(&self) -> Result<()> {
        self.0.iter().try_for_each(|c| move_to(&c.parent))
    }

    /// Removes them; returns whether all are removed.
    pub(crate) fn remove(&self) -> bool {
        let mut is_gone = true;
        for cgroup in &self.0 {
            remove(&cgroup.directory);
            is_gone &= !cgroup.directory.exists();
        }
        is_gone
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| named(Path::new(path), &error))
}

fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn parse_mount(line: &str) -> Option<Mount> {
    let mut words = line.split(' ').skip(1);
    let (target, kind, options) = (words.next()?, words.next()?, words.next()?);
    let options = match kind {
        "cgroup" => {
            // An option that is not a general one identifies the hierarchy.
            let general = ["rw", "ro", "nosuid", "nodev", "noexec", "relatime", "xattr"];
            let own = options.split(',').filter(|word| !general.contains(word));
            own.collect::<Vec<_>>().join(",")
        }
        "cgroup2" => String::new(),
        _ => return None,
    };
    Some(Mount {
        kind: kind.to_owned(),
        options,
        target: target.into(),
    })
}

/// The mount of a hierarchy that `/proc/PID/cgroup` identifies by these controllers; `None` for v2.
fn find<'a>(mounted: &'a [Mount], controllers: &str) -> Option<&'a Mount> {
    mounted.iter().find(|mount| {
        let has = |word: &str| mount.options.split(',').any(|option| option == word);
        match controllers {
            "" => mount.kind == "cgroup2",
            names => mount.kind == "cgroup" && names.split(',').all(has),
        }
    })
}

fn move_to(directory: &Path) -> Result<()> {
    let file = directory.join("cgroup.procs");
    std::fs::write(&file, "0").map_err(|error| named(&file, &error))
}

/// Removes the cgroups of supervisors that no longer exist.
fn remove_stale(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let supervisor = name
            .to_str()
            .and_then(|n| n.strip_prefix("albacore-testbed-"));
        if supervisor.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&entry.path());
        }
    }
}

/// Removes a cgroup and its descendants, except those with processes.
fn remove(directory: &Path) {
    // Sorted by depth, so that children are removed before their parents.
    let mut found: BTreeMap<(usize, PathBuf), ()> = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    // bound: the cgroups of one node
    while let Some(next) = open.pop() {
        let entries = std::fs::read_dir(&next).into_iter().flatten().flatten();
        open.extend(entries.map(|e| e.path()).filter(|p| p.is_dir()));
        found.insert((next.components().count(), next), ());
    }
    for ((_, path), ()) in found.into_iter().rev() {
        let _ = std::fs::remove_dir(path);
    }
}
