//! Eviction of cached files and of their version records.

use super::*;

fn fetched(bytes: &[u8], version: &str) -> Fetched {
    Fetched {
        bytes: bytes.to_vec(),
        sha256: sha256(bytes),
        version: Some(version.to_owned()),
        python: None,
        cache: CacheUse::Unused,
    }
}

fn store(cache: &Cache, url: &str, bytes: &[u8]) {
    let mut written = cache.write(fetched(bytes, "\"etag\""));
    assert_eq!(written.cache, CacheUse::Written);
    cache.write_version_record(key(url, std::iter::empty()), &mut written);
    assert_eq!(written.cache, CacheUse::Written);
}

fn names(folder: &Path, kind: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap();
    let all = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    all.filter(|name| name.starts_with(kind)).count()
}

#[test]
fn a_version_record_is_removed_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 25).unwrap();
    let record = |url| cache.version_record(key(url, std::iter::empty()));
    // Two objects with the same bytes share a file.
    store(&cache, "s3://a/first", b"0123456789");
    store(&cache, "s3://a/same", b"0123456789");
    let first = folder
        .path()
        .join(format!("{FILE_PREFIX}{}", sha256(b"0123456789")));
    let long_ago = SystemTime::UNIX_EPOCH;
    File::open(&first).unwrap().set_modified(long_ago).unwrap();
    store(&cache, "s3://a/second", b"second");
    assert_eq!(
        (
            names(folder.path(), FILE_PREFIX),
            names(folder.path(), VERSION_RECORD_PREFIX)
        ),
        (2, 3)
    );
    store(&cache, "s3://a/third", b"0123456789abcde");
    assert!(!first.exists());
    assert_eq!(
        (record("s3://a/first"), record("s3://a/same")),
        (None, None)
    );
    assert!(record("s3://a/second").is_some() && record("s3://a/third").is_some());
    assert_eq!(
        (
            names(folder.path(), FILE_PREFIX),
            names(folder.path(), VERSION_RECORD_PREFIX)
        ),
        (2, 2)
    );
}

#[test]
fn stale_and_corrupt_version_records_are_removed_on_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 100).unwrap();
    store(&cache, "s3://a/gone", b"gone");
    fs::remove_file(
        folder
            .path()
            .join(format!("{FILE_PREFIX}{}", sha256(b"gone"))),
    )
    .unwrap();
    fs::write(folder.path().join("origin-damaged"), "no digest").unwrap();
    // A file of another program.
    fs::write(folder.path().join("other"), "").unwrap();
    store(&cache, "s3://a/new", b"new");
    assert_eq!(names(folder.path(), VERSION_RECORD_PREFIX), 1);
    assert!(
        cache
            .version_record(key("s3://a/new", std::iter::empty()))
            .is_some()
    );
    assert_eq!(names(folder.path(), "other"), 1);
}

#[test]
fn the_number_of_version_records_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 100).unwrap();
    store(&cache, "s3://a/one", b"one");
    let record_text = format!("{} \"etag\"\n", sha256(b"one"));
    for number in 0..VERSION_RECORDS_MAX + 10 {
        fs::write(
            folder
                .path()
                .join(format!("{VERSION_RECORD_PREFIX}{number}")),
            &record_text,
        )
        .unwrap();
    }
    store(&cache, "s3://a/two", b"two");
    // The record of the new file is written after those beyond the bound are removed.
    assert!(names(folder.path(), VERSION_RECORD_PREFIX) <= VERSION_RECORDS_MAX + 1);
}
