//! Regions of real files: rejected registrations, reads and writes, and truncated files.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

const LIMIT: u64 = 1_000;

struct Shm {
    folder: tempfile::TempDir,
    regions: SharedMemoryRegions,
}

fn shm() -> Shm {
    let folder = tempfile::tempdir().unwrap();
    let regions = SharedMemoryRegions::in_folder(folder.path(), LIMIT);
    fs::write(folder.path().join("object"), [7; 100]).unwrap();
    Shm { folder, regions }
}

fn part(name: &str, key: &str, offset: u64, bytes: u64) -> RegionStatus {
    RegionStatus {
        name: name.to_owned(),
        key: key.to_owned(),
        offset,
        bytes,
    }
}

impl Shm {
    fn refusal(&self, name: &str, key: &str, (offset, bytes): (u64, u64)) -> String {
        let refused = self.regions.register(part(name, key, offset, bytes));
        refused.unwrap_err().to_string()
    }
}

#[test]
fn tensors_are_read_and_written_inside_of_their_region() {
    let shm = shm();
    shm.regions.register(part("r", "/object", 10, 50)).unwrap();
    let slice = shm.regions.slice("r", 20, 30).unwrap();
    slice.write(&[1, 2, 3]).unwrap();
    assert_eq!(slice.read().unwrap()[..5], [1, 2, 3, 7, 7]);
    let file = fs::read(shm.folder.path().join("object")).unwrap();
    assert_eq!((file.len(), &file[29..34]), (100, &[7, 1, 2, 3, 7][..]));
    assert!(slice.write(&[0; 31]).is_err());
    for (offset, bytes) in [(20, 31), (51, 0), (0, 51), (u64::MAX, 2), (1, u64::MAX)] {
        let message = shm
            .regions
            .slice("r", offset, bytes)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("outside of shared memory region \"r\""),
            "{message}"
        );
    }
    let message = shm.regions.slice("q", 0, 1).unwrap_err().to_string();
    assert!(
        message.contains("\"q\" is not registered; registered are [\"r\"]"),
        "{message}"
    );
}

#[test]
fn a_truncated_object_is_an_error_with_both_sizes_and_is_not_made_larger() {
    let shm = shm();
    shm.regions.register(part("r", "object", 0, 100)).unwrap();
    let slice = shm.regions.slice("r", 40, 60).unwrap();
    let path = shm.folder.path().join("object");
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(50)
        .unwrap();
    for error in [
        slice.read().unwrap_err(),
        slice.write(&[0; 60]).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(
            message.contains("needs 100 bytes of object \"object\", which has 50"),
            "{message}"
        );
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 50);
    assert_eq!(
        shm.regions.slice("r", 0, 50).unwrap().read().unwrap(),
        [7; 50]
    );
    // The open file is used, not the file that has its name now.
    fs::remove_file(&path).unwrap();
    assert_eq!(
        shm.regions.slice("r", 0, 50).unwrap().read().unwrap(),
        [7; 50]
    );
}

#[test]
fn only_plain_names_of_regular_files_are_opened() {
    let shm = shm();
    let inside = shm.folder.path().join("sub");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("other"), [0; 9]).unwrap();
    symlink(
        shm.folder.path().join("object"),
        shm.folder.path().join("link"),
    )
    .unwrap();
    for key in [
        "",
        "/",
        ".",
        "..",
        "/..",
        "//object",
        "sub/other",
        "../object",
        "a\0b",
    ] {
        let message = shm.refusal("r", key, (0, 1));
        assert!(
            message.contains("is not the name of a shared memory object"),
            "{key}: {message}"
        );
    }
    for key in ["link", "nothing", "sub"] {
        let message = shm.refusal("r", key, (0, 1));
        assert!(message.contains("cannot be opened"), "{key}: {message}");
    }
    let long = "k".repeat(256);
    assert!(shm.refusal("r", &long, (0, 1)).contains("not the name"));
}

#[test]
fn sizes_and_numbers_are_bounded() {
    let shm = shm();
    assert!(
        shm.refusal("r", "object", (0, 101))
            .contains("needs 101 bytes")
    );
    assert!(
        shm.refusal("r", "object", (100, 1))
            .contains("needs 101 bytes")
    );
    assert!(
        shm.refusal("r", "object", (u64::MAX, 1))
            .contains("which has 100")
    );
    assert!(shm.refusal("r", "object", (0, 0)).contains("byte_size"));
    assert!(shm.refusal("", "object", (0, 1)).contains("1 to 253 bytes"));
    assert!(
        shm.refusal(&"n".repeat(254), "object", (0, 1))
            .contains("not 254")
    );
    for index in 0..10 {
        let name = format!("r{index}");
        shm.regions.register(part(&name, "object", 0, 100)).unwrap();
    }
    let message = shm.refusal("more", "object", (0, 1));
    assert!(
        message.contains("--shared-memory-bytes-max, 1000 bytes"),
        "{message}"
    );
    assert!(
        shm.refusal("r0", "object", (0, 1))
            .contains("registered already")
    );
    shm.regions.unregister("r0").unwrap();
    shm.regions.unregister("r0").unwrap();
    assert_eq!(shm.regions.status("").unwrap().len(), 9);
    assert_eq!(
        shm.regions.status("r1").unwrap(),
        [part("r1", "object", 0, 100)]
    );
    shm.regions.unregister("").unwrap();
    assert!(shm.regions.status("").unwrap().is_empty());
    assert!(shm.regions.status("r1").is_err());
    for index in 0..REGIONS_MAX {
        let name = format!("r{index}");
        shm.regions.register(part(&name, "object", 0, 1)).unwrap();
    }
    assert!(
        shm.refusal("more", "object", (0, 1))
            .contains("which is the maximum")
    );
    let message = shm.regions.slice("more", 0, 1).unwrap_err().to_string();
    assert!(message.ends_with("\"r104\"] of 256"), "{message}");
}

#[test]
fn nothing_is_opened_while_the_extension_is_off() {
    let regions = SharedMemoryRegions::new(0);
    let off = "--shared-memory-bytes-max";
    let refused = regions.register(part("r", "object", 0, 1));
    assert!(refused.unwrap_err().to_string().contains(off));
    assert!(regions.status("").unwrap_err().to_string().contains(off));
    assert!(
        regions
            .unregister("")
            .unwrap_err()
            .to_string()
            .contains(off)
    );
    assert!(
        regions
            .slice("r", 0, 1)
            .unwrap_err()
            .to_string()
            .contains(off)
    );
}
