//! Which files of a cache make room, and their notes with them.

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

fn keep(cache: &Cache, url: &str, bytes: &[u8]) {
    let mut written = cache.write(fetched(bytes, "\"etag\""));
    assert_eq!(written.cache, CacheUse::Written);
    cache.set_origin(key(url, std::iter::empty()), &mut written);
    assert_eq!(written.cache, CacheUse::Written);
}

fn names(folder: &Path, kind: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap();
    let all = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    all.filter(|name| name.starts_with(kind)).count()
}

#[test]
fn a_note_is_removed_with_its_file_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 25).unwrap();
    let origin = |url| cache.origin(key(url, std::iter::empty()));
    // Two objects with the same bytes share a file.
    keep(&cache, "s3://a/first", b"0123456789");
    keep(&cache, "s3://a/same", b"0123456789");
    let first = folder
        .path()
        .join(format!("{FILE}{}", sha256(b"0123456789")));
    let long_ago = SystemTime::UNIX_EPOCH;
    File::open(&first).unwrap().set_modified(long_ago).unwrap();
    keep(&cache, "s3://a/second", b"second");
    assert_eq!(
        (names(folder.path(), FILE), names(folder.path(), ORIGIN)),
        (2, 3)
    );
    keep(&cache, "s3://a/third", b"0123456789abcde");
    assert!(!first.exists());
    assert_eq!(
        (origin("s3://a/first"), origin("s3://a/same")),
        (None, None)
    );
    assert!(origin("s3://a/second").is_some() && origin("s3://a/third").is_some());
    assert_eq!(
        (names(folder.path(), FILE), names(folder.path(), ORIGIN)),
        (2, 2)
    );
}

#[test]
fn notes_without_files_and_damaged_ones_are_removed_at_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 100).unwrap();
    keep(&cache, "s3://a/gone", b"gone");
    fs::remove_file(folder.path().join(format!("{FILE}{}", sha256(b"gone")))).unwrap();
    fs::write(folder.path().join("origin-damaged"), "no digest").unwrap();
    // Of somebody else.
    fs::write(folder.path().join("other"), "").unwrap();
    keep(&cache, "s3://a/new", b"new");
    assert_eq!(names(folder.path(), ORIGIN), 1);
    assert!(
        cache
            .origin(key("s3://a/new", std::iter::empty()))
            .is_some()
    );
    assert_eq!(names(folder.path(), "other"), 1);
}

#[test]
fn there_are_no_more_notes_than_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 100).unwrap();
    keep(&cache, "s3://a/one", b"one");
    let note = format!("{} \"etag\"\n", sha256(b"one"));
    for number in 0..ORIGINS_MAX + 10 {
        fs::write(folder.path().join(format!("{ORIGIN}{number}")), &note).unwrap();
    }
    keep(&cache, "s3://a/two", b"two");
    // That of the new file is written after those beyond the bound are removed.
    assert!(names(folder.path(), ORIGIN) <= ORIGINS_MAX + 1);
}
