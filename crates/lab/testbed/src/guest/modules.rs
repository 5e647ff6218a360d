//! Kernel modules of a guest and their dependencies, which each module lists in its `depends=`
//! field.

use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// Files of these modules and of their dependencies, in load order. A module without a file in
/// `folder` is built into the kernel.
pub(super) fn in_order(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>> {
    let mut known = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    // bound: the folders of one kernel
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if let Some(name) = name_of(&path) {
                known.insert(name, path);
            }
        }
    }
    if known.is_empty() {
        return Err(Error::other(format!("{}: no modules", folder.display())));
    }
    let mut order = Vec::new();
    for name in names {
        add(&known, name, &mut order)?;
    }
    Ok(order)
}

/// Name of a module: that of its file, where `-` and `_` are equivalent.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".ko")?;
    Some(name.replace('-', "_"))
}

/// Adds a module after its dependencies. They are acyclic: the kernel could not load a cycle.
fn add(known: &BTreeMap<String, PathBuf>, name: &str, order: &mut Vec<PathBuf>) -> Result<()> {
    let Some(path) = known.get(&name.replace('-', "_")) else {
        return Ok(());
    };
    if order.contains(path) {
        return Ok(());
    }
    for need in needs(&std::fs::read(path)?) {
        add(known, &need, order)?;
    }
    order.push(path.clone());
    Ok(())
}

/// Words of the field `depends=`.
fn needs(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let at = module.windows(key.len()).position(|bytes| bytes == key);
    let value = at.map_or(&[][..], |at| &module[at + key.len()..]);
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let words = String::from_utf8_lossy(value);
    let words = words.split(',').filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_precede_a_module_and_occur_once() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("net");
        std::fs::create_dir(&below).unwrap();
        for (name, needs) in [
            ("nf-nat", "nf_conntrack"),
            ("nf_conntrack", ""),
            ("iptable_nat", "nf_nat,nf_conntrack"),
            ("other", ""),
        ] {
            let line = format!("license=GPL\0depends={needs}\0name={name}\0");
            std::fs::write(below.join(name).with_extension("ko"), line).unwrap();
        }
        let order = in_order(folder.path(), &["iptable_nat", "built_in", "nf_nat"]).unwrap();
        let names: Vec<_> = order.iter().filter_map(|path| name_of(path)).collect();
        assert_eq!(names, ["nf_conntrack", "nf_nat", "iptable_nat"]);
    }
}
