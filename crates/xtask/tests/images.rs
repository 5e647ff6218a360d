//! Archives of images, read like by a registry: by digests, sizes and media types.
//!
//! `tests/images/run.sh` tests the real images with containerd, runc, skopeo and a registry.
// Helper functions are also test code.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use albacore_xtask::images::{
    Architecture, IMAGES, Image, REGISTRY, Source, Variant, Written, bill, write,
};
use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The files of an image layout that are not blobs.
fn layout() -> BTreeSet<String> {
    ["index.json", "oci-layout"].map(str::to_owned).into()
}

/// A substitute for a program: its content is irrelevant, but it is compressible.
fn program() -> Vec<u8> {
    (0..300_000_u32)
        .flat_map(|n| (n / 7).wrapping_mul(n).to_le_bytes())
        .collect()
}

/// Substitutes for the programs of an image, all different.
fn programs(image: &Image) -> Vec<Vec<u8>> {
    let all = image.programs.iter().enumerate();
    all.map(|(index, _)| program()[index..].to_vec()).collect()
}

fn written(image: &Image, programs: &[Vec<u8>]) -> Written {
    let programs: Vec<&[u8]> = programs.iter().map(Vec::as_slice).collect();
    write(image, &source(), &[amd64(&programs)]).unwrap()
}

fn amd64<'a>(programs: &'a [&'a [u8]]) -> Variant<'a> {
    Variant {
        architecture: Architecture::Amd64,
        programs,
    }
}

fn source() -> Source {
    Source {
        version: "1.2.3".to_owned(),
        revision: Some("0123abcd".to_owned()),
        epoch: 1_795_291_200,
    }
}

fn sha256(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    let digits: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Files of a tar by path; asserts that none of them reveals when, where or by whom it was built.
fn unpacked(tar: &[u8], mode: u32) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(tar);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let (path, header) = (
            entry.path().unwrap().display().to_string(),
            entry.header().clone(),
        );
        assert!(header.entry_type().is_file(), "{path}");
        assert_eq!(header.mtime().unwrap(), source().epoch, "{path}");
        assert_eq!(
            (header.uid().unwrap(), header.gid().unwrap()),
            (0, 0),
            "{path}"
        );
        assert_eq!(header.mode().unwrap(), mode, "{path}");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(path, bytes);
    }
    files
}

/// The blob of `descriptor`, verified against its digest and size.
fn blob<'a>(
    files: &'a BTreeMap<String, Vec<u8>>,
    descriptor: &Value,
    kind: &str,
    visited_blobs: &mut BTreeSet<String>,
) -> &'a [u8] {
    assert_eq!(descriptor["mediaType"], kind);
    let digest = descriptor["digest"].as_str().unwrap();
    let path = format!("blobs/{}", digest.replace(':', "/"));
    let bytes = &files[&path];
    assert_eq!(sha256(bytes), digest);
    assert_eq!(descriptor["size"], bytes.len());
    visited_blobs.insert(path);
    bytes
}

/// The only entry of the archive.
fn entry(image: &Image, files: &BTreeMap<String, Vec<u8>>, digest: &str) -> Value {
    let layout: Value = serde_json::from_slice(&files["oci-layout"]).unwrap();
    assert_eq!(layout["imageLayoutVersion"], "1.0.0");
    let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
    assert_eq!(index["schemaVersion"], 2);
    assert_eq!(index["mediaType"], INDEX);
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    let named = &index["manifests"][0];
    assert_eq!(named["digest"], digest);
    let annotations = &named["annotations"];
    let reference = format!("{REGISTRY}/{}:1.2.3", image.name);
    assert_eq!(annotations["io.containerd.image.name"], reference.as_str());
    assert_eq!(annotations["org.opencontainers.image.ref.name"], "1.2.3");
    named.clone()
}

/// Reads the image with descriptor `named` and compares it with `programs`.
fn read_image(
    image: &Image,
    files: &BTreeMap<String, Vec<u8>>,
    named: &Value,
    programs: &[Vec<u8>],
    visited_blobs: &mut BTreeSet<String>,
) {
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest: Value = serde_json::from_slice(blob(files, named, kind, visited_blobs)).unwrap();
    assert_eq!(
        (&manifest["schemaVersion"], &manifest["mediaType"]),
        (&2.into(), &kind.into())
    );
    let kind = "application/vnd.oci.image.config.v1+json";
    let config: Value =
        serde_json::from_slice(blob(files, &manifest["config"], kind, visited_blobs)).unwrap();
    assert_eq!(config["os"], "linux");
    assert_eq!(config["architecture"], named["platform"]["architecture"]);
    assert_eq!(config["created"], "2026-11-21T20:00:00Z");
    let run = &config["config"];
    assert_eq!(run["User"], image.user);
    assert_eq!(
        run["Entrypoint"],
        serde_json::json!([format!("/{}", image.programs[0].name)])
    );
    let ports: BTreeSet<String> = image
        .ports
        .iter()
        .map(|port| format!("{port}/tcp"))
        .collect();
    assert!(run["ExposedPorts"].as_object().unwrap().keys().eq(&ports));
    assert_eq!(
        run["Labels"]["org.opencontainers.image.revision"],
        "0123abcd"
    );
    assert_eq!(
        run["Labels"]["org.opencontainers.image.licenses"],
        "Apache-2.0"
    );

    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let gzip = blob(files, &manifest["layers"][0], kind, visited_blobs);
    let mut tar = Vec::new();
    let mut decoder = GzDecoder::new(gzip);
    decoder.read_to_end(&mut tar).unwrap();
    assert_eq!(decoder.header().unwrap().mtime(), 0);
    assert_eq!(
        config["rootfs"]["diff_ids"],
        serde_json::json!([sha256(&tar)])
    );
    let layer = unpacked(&tar, 0o555);
    let names = image.programs.iter().map(|program| program.name.to_owned());
    assert_eq!(layer, names.zip(programs.to_vec()).collect());
}

#[test]
fn every_image_is_what_the_oci_describes() {
    for image in &IMAGES {
        let programs = programs(image);
        let written = written(image, &programs);
        let files = unpacked(&written.bytes, 0o444);
        let named = entry(image, &files, &written.digest);
        let mut visited_blobs = layout();
        read_image(image, &files, &named, &programs, &mut visited_blobs);
        assert!(files.keys().eq(&visited_blobs), "nothing else is in it");
    }
}

#[test]
fn an_image_of_two_architectures_is_an_index_with_both() {
    let image = &IMAGES[0];
    let ours = programs(image);
    let mut others = ours.clone();
    others[0].pop();
    let (first, second): (Vec<&[u8]>, Vec<&[u8]>) = (
        ours.iter().map(Vec::as_slice).collect(),
        others.iter().map(Vec::as_slice).collect(),
    );
    let arm64 = Variant {
        architecture: Architecture::Arm64,
        programs: &second,
    };
    let written = write(image, &source(), &[amd64(&first), arm64]).unwrap();
    let files = unpacked(&written.bytes, 0o444);
    let named = entry(image, &files, &written.digest);
    let mut visited_blobs = layout();
    let index: Value =
        serde_json::from_slice(blob(&files, &named, INDEX, &mut visited_blobs)).unwrap();
    let manifests = index["manifests"].as_array().unwrap();
    let architectures = manifests.iter().map(|m| &m["platform"]["architecture"]);
    assert!(architectures.eq(&["amd64", "arm64"]));
    read_image(image, &files, &manifests[0], &ours, &mut visited_blobs);
    read_image(image, &files, &manifests[1], &others, &mut visited_blobs);
    assert!(files.keys().eq(&visited_blobs), "nothing else is in it");
    assert!(
        write(image, &source(), &[]).is_err(),
        "an image of no architecture"
    );
}

#[test]
fn equal_programs_give_equal_archives_and_others_do_not() {
    for image in &IMAGES {
        let once = written(image, &programs(image));
        let again = written(image, &programs(image));
        assert_eq!(once.digest, again.digest);
        assert!(once.bytes == again.bytes, "{}", image.name);
        let mut others = programs(image);
        others.last_mut().unwrap().pop();
        let other = written(image, &others);
        assert_ne!(once.digest, other.digest);
    }
}

#[test]
fn an_archive_is_the_same_on_every_machine() {
    // A recorded digest: if it changes only because of a new version of miniz_oxide, all digests
    // change, which belongs in the release notes.
    let image = Image {
        name: "fixed",
        ..IMAGES[0]
    };
    let archive = written(&image, &programs(&image)).bytes;
    let layer = unpacked(&archive, 0o444)
        .into_values()
        .find(|bytes| bytes.starts_with(&[0x1f, 0x8b]))
        .unwrap();
    assert_eq!(
        sha256(&layer),
        "sha256:5b664f1fef96cc90ff6ee324662c3d638d166a3b597107be47005087d67c481b"
    );
}

#[test]
fn only_the_agent_is_root_and_every_user_is_a_number() {
    for image in &IMAGES {
        let ids: Vec<u32> = image
            .user
            .split(':')
            .map(|id| id.parse().unwrap())
            .collect();
        assert_eq!(ids.len(), 2, "{}", image.name);
        assert_eq!(
            ids[0] == 0,
            image.name == "albacore-agent",
            "{}",
            image.name
        );
    }
}

#[test]
fn a_bill_names_every_crate_that_is_linked_with_its_license_and_sum() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let image = IMAGES
        .iter()
        .find(|image| image.name == "albacore-server")
        .unwrap();
    let program: [&[u8]; 1] = [b"program"];
    let text = bill(root, image, &source(), &amd64(&program)).unwrap();
    assert_eq!(
        text,
        bill(root, image, &source(), &amd64(&program)).unwrap()
    );
    let bill: Value = serde_json::from_str(&text).unwrap();
    let sum = &bill["metadata"]["component"]["hashes"][0]["content"];
    assert_eq!(
        format!("sha256:{}", sum.as_str().unwrap()),
        sha256(b"program")
    );

    let components = bill["components"].as_array().unwrap();
    let names: BTreeSet<&str> = components
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    for linked in ["albacore-trees", "hyper", "mimalloc", "tonic", "rust-std"] {
        assert!(names.contains(linked), "{linked}");
    }
    for not_linked in [
        "kube-client",
        "proptest",
        "serde_derive",
        "cc",
        "albacore-server",
    ] {
        assert!(!names.contains(not_linked), "{not_linked}");
    }
    for component in components {
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{component}"
        );
        let is_ours = component["name"].as_str().unwrap().starts_with("albacore-");
        let is_foreign = !is_ours && component["name"] != "rust-std";
        let sum = component["hashes"][0]["content"]
            .as_str()
            .unwrap_or_default();
        assert_eq!(sum.len(), if is_foreign { 64 } else { 0 }, "{component}");
    }
    let known: BTreeSet<&str> = components
        .iter()
        .chain([&bill["metadata"]["component"]])
        .filter_map(|component| component["bom-ref"].as_str())
        .collect();
    assert_eq!(known.len(), components.len() + 1, "a reference is unique");
    for edge in bill["dependencies"].as_array().unwrap() {
        let ends = edge["dependsOn"]
            .as_array()
            .unwrap()
            .iter()
            .chain([&edge["ref"]]);
        assert!(
            ends.into_iter()
                .all(|end| end.as_str().is_some_and(|end| known.contains(end))),
            "{edge}"
        );
    }
}

#[test]
fn a_bill_of_several_programs_names_each_with_its_sum() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let is_several = |image: &&Image| image.programs.len() > 1;
    let image = IMAGES.iter().find(is_several).unwrap();
    let programs = programs(image);
    let contents: Vec<&[u8]> = programs.iter().map(Vec::as_slice).collect();
    let bill = bill(root.unwrap(), image, &source(), &amd64(&contents)).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    let components = bill["components"].as_array().unwrap();
    let of = |name: &str| components.iter().find(|c| c["name"] == name);
    let first = &bill["metadata"]["component"];
    for (program, bytes) in image.programs.iter().zip(&programs) {
        let found = of(program.name).unwrap_or(first);
        assert_eq!(found["name"], program.name);
        let sum = found["hashes"][0]["content"].as_str().unwrap();
        assert_eq!(format!("sha256:{sum}"), sha256(bytes), "{}", program.name);
    }
    for linked in ["kube-client", "albacore-experiment", "tonic"] {
        assert!(of(linked).is_some(), "{linked}");
    }
}
