//! The bill of materials (SBOM) of a program: the crates that are linked into it, as CycloneDX
//! JSON.
//!
//! `cargo tree` lists the crates, with the features of the build of all programs, for the target of
//! the images, and without procedural macros and build scripts, which run on the builder. Checksums
//! are read from `Cargo.lock`. Reasons against `cargo-cyclonedx`:
//! docs/decisions/2026-11-23-sbom.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::archive::hex;
use super::compile::{cargo, stdout_of};
use super::{Image, Program, Source, Variant, programs};

/// Name and version of a crate.
type CrateId = (String, String);

#[derive(Default)]
struct LinkedCrate {
    license: String,
    dependencies: BTreeSet<CrateId>,
}

/// The bill of materials of an image whose programs were built from the checkout at `root`. The
/// first program is its subject, and the others are components.
///
/// # Errors
/// There is no cargo, or `Cargo.lock` is missing or older than the manifests.
pub fn bill(root: &Path, image: &Image, source: &Source, variant: &Variant<'_>) -> Result<String> {
    let target = variant.architecture.target();
    let all = programs();
    let packages = all
        .iter()
        .flat_map(|program| ["--package", program.package]);
    let tree = stdout_of(
        Command::new(cargo())
            .args(["tree", "--locked"])
            .args(packages)
            .args(["--target", &target, "--edges", "normal,no-proc-macro"])
            .args(["--prefix", "depth", "--format", "\t{p}\t{l}"])
            .current_dir(root),
    )?;
    let own: Vec<&str> = image
        .programs
        .iter()
        .map(|program| program.package)
        .collect();
    let crates = linked(parse_tree(&tree)?, &own);
    let lock = root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).with_context(|| lock.display().to_string())?;
    let sums = parse_lock(&lock);
    let library = stdout_of(Command::new("rustc").arg("--version"))?;
    let library = library.split(' ').nth(1).unwrap_or_default();

    let of = |program: &Program| {
        let name = crates.keys().find(|name| name.0 == program.package);
        name.context("cargo tree does not list a package that it was asked about")
    };
    let mut named = image.programs.iter().zip(variant.programs);
    let (first, content) = named.next().context("the image has no program")?;
    let itself = of(first)?;
    let mut others = BTreeMap::new();
    for (program, content) in named {
        others.insert(of(program)?, application(of(program)?, program, content));
    }
    let standard = ("rust-std".to_owned(), library.to_owned());
    let mut components: Vec<Value> = crates
        .iter()
        .filter(|(name, _)| *name != itself)
        .map(|(name, krate)| match others.remove(name) {
            Some(program) => program,
            None => component(name, &krate.license, sums.get(name)),
        })
        .collect();
    components.push(standard_library(&standard, &target));
    let edges = crates.iter().map(|(name, krate)| {
        let dependencies = krate.dependencies.iter().chain([&standard]).map(reference);
        json!({"ref": reference(name), "dependsOn": dependencies.collect::<Vec<_>>()})
    });
    let mut whole = application(itself, first, content);
    whole["description"] = json!(image.description);
    let mut bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": source.created(),
            "component": whole,
        },
        "components": components,
        "dependencies": edges.collect::<Vec<_>>(),
    });
    bill.sort_all_objects();
    Ok(format!("{bill:#}\n"))
}

fn standard_library(name: &CrateId, target: &str) -> Value {
    json!({
        "type": "library",
        "bom-ref": reference(name),
        "name": name.0,
        "version": name.1,
        "description": format!("Rust's standard library for {target}, with musl in it"),
        "licenses": [{"expression": "(MIT OR Apache-2.0) AND MIT"}],
    })
}

fn application(name: &CrateId, program: &Program, content: &[u8]) -> Value {
    json!({
        "type": "application",
        "bom-ref": reference(name),
        "name": program.name,
        "version": name.1,
        "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
        "hashes": [{"alg": "SHA-256", "content": hex(content)}],
    })
}

fn component(name: &CrateId, license: &str, sum: Option<&String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(name),
        "name": name.0,
        "version": name.1,
        // Old manifests use "/" for "OR".
        "licenses": [{"expression": license.replace('/', " OR ")}],
    });
    // Crates of this workspace are not in a registry.
    if let Some(sum) = sum {
        component["purl"] = json!(format!("pkg:cargo/{}@{}", name.0, name.1));
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

fn reference((name, version): &CrateId) -> String {
    format!("{name}@{version}")
}

/// `packages` and their direct and indirect dependencies among `crates`.
fn linked(
    mut crates: BTreeMap<CrateId, LinkedCrate>,
    packages: &[&str],
) -> BTreeMap<CrateId, LinkedCrate> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<CrateId> = crates
        .keys()
        .filter(|name| packages.contains(&name.0.as_str()))
        .cloned()
        .collect();
    // bound: each crate is reached once.
    while let Some(name) = open.pop() {
        let dependencies = crates.get(&name).map(|krate| &krate.dependencies);
        open.extend(
            dependencies
                .into_iter()
                .flatten()
                .filter(|n| !reached.contains(*n))
                .cloned(),
        );
        reached.insert(name);
    }
    crates.retain(|name, _| reached.contains(name));
    crates
}

/// Parses lines `DEPTH\tNAME vVERSION ...\tLICENSE`, in which a crate follows the one that depends
/// on it. The dependencies of a crate are listed only at its first occurrence.
fn parse_tree(text: &str) -> Result<BTreeMap<CrateId, LinkedCrate>> {
    let mut crates = BTreeMap::<CrateId, LinkedCrate>::new();
    let mut way = Vec::<CrateId>::new();
    // The trees of two packages are separated by a blank line.
    for line in text.lines().filter(|line| !line.is_empty()) {
        let unexpected = || format!("cargo tree printed {line:?}");
        let mut parts = line.split('\t');
        let depth: usize = parts
            .next()
            .unwrap_or_default()
            .parse()
            .with_context(unexpected)?;
        let mut words = parts.next().unwrap_or_default().split(' ');
        let (name, version) = (words.next(), words.next().and_then(|v| v.strip_prefix('v')));
        let name = name.zip(version).with_context(unexpected)?;
        let name = (name.0.to_owned(), name.1.to_owned());
        let license = parts
            .next()
            .with_context(unexpected)?
            .trim_end_matches(" (*)");
        ensure!(depth <= way.len() && !license.is_empty(), unexpected());
        way.truncate(depth);
        if let Some(above) = way.last() {
            let above = crates.entry(above.clone()).or_default();
            above.dependencies.insert(name.clone());
        }
        crates.entry(name.clone()).or_default().license = license.to_owned();
        way.push(name);
    }
    Ok(crates)
}

/// SHA-256 checksums of the crates in a `Cargo.lock`.
fn parse_lock(text: &str) -> BTreeMap<CrateId, String> {
    let mut sums = BTreeMap::new();
    for package in text.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            let line = package.lines().find_map(|line| line.strip_prefix(&start));
            line.and_then(|rest| rest.strip_suffix('"'))
                .map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            sums.insert((name, version), sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_depends_on_the_crates_listed_below_it() {
        let text = "0\ta v1.0.0 (/a)\tMIT\n1\tb v2.0.0\tMIT/Apache-2.0\n2\tc v3.0.0\tISC\n\
                    1\tc v3.0.0\tISC (*)\n";
        let crates = parse_tree(text).unwrap();
        let edges: Vec<String> = crates
            .iter()
            .flat_map(|(name, krate)| {
                let start = reference(name);
                krate
                    .dependencies
                    .iter()
                    .map(move |n| format!("{start} {}", reference(n)))
            })
            .collect();
        assert_eq!(
            edges,
            ["a@1.0.0 b@2.0.0", "a@1.0.0 c@3.0.0", "b@2.0.0 c@3.0.0"]
        );
        assert!(crates.values().all(|krate| !krate.license.contains('*')));
        assert!(parse_tree("0\ta 1.0.0\tMIT").is_err(), "no version");
        assert!(parse_tree("0\ta v1.0.0\t").is_err(), "no license");
    }

    #[test]
    fn a_bill_lists_only_crates_that_the_program_links() {
        let text = "0\ta v1.0.0 (/a)\tMIT\n1\tb v2.0.0\tMIT\n2\tc v3.0.0\tISC\n\n\
                    0\td v1.0.0 (/d)\tMIT\n1\tc v3.0.0\tISC (*)\n";
        let names = |package: &str| -> Vec<String> {
            let linked = linked(parse_tree(text).unwrap(), &[package]);
            linked.into_keys().map(|(name, _)| name).collect()
        };
        assert_eq!(names("a"), ["a", "b", "c"]);
        assert_eq!(names("d"), ["c", "d"]);
    }

    #[test]
    fn checksums_come_from_cargo_lock() {
        let text = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\n\
                    name = \"b\"\nversion = \"2.0.0\"\nchecksum = \"12ab\"\ndependencies = [\n]\n";
        let sums = parse_lock(text);
        let b = ("b".to_owned(), "2.0.0".to_owned());
        assert_eq!(sums, BTreeMap::from([(b, "12ab".to_owned())]));
    }
}
