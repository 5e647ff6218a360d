//! The layer of an image: its programs in a compressed tar, reproducible byte for byte.
//!
//! It is compressed with `miniz_oxide`, not with `flate2`, whose output depends on the backend that
//! the features of the build select. The gzip frame is written here, without a time stamp.

use std::io;

/// 0 is fastest, 10 is smallest; above 9 the gain is not worth the time.
const LEVEL: u8 = 9;

/// A gzip member of RFC 1952: deflate, no flags, no time, unknown system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A layer, uncompressed (for the digest in the configuration) and compressed (as it is stored).
pub struct Layer {
    pub tar: Vec<u8>,
    pub gzip: Vec<u8>,
}

/// The layer with these programs (name, bytes) at the root, owned by root and not writable, with
/// the time `epoch`.
///
/// # Errors
/// A name that a tar cannot hold.
pub fn layer(programs: &[(&str, &[u8])], epoch: u64) -> io::Result<Layer> {
    let files: Vec<(&str, u32, &[u8])> = programs
        .iter()
        .map(|&(name, bytes)| (name, 0o555, bytes))
        .collect();
    let tar = tar(&files, epoch)?;
    let gzip = gzip(&tar);
    Ok(Layer { tar, gzip })
}

/// A tar of `files` (path, mode, bytes) in their order. A path that ends with a slash is a folder.
pub(crate) fn tar(files: &[(&str, u32, &[u8])], epoch: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(match path.ends_with('/') {
            true => tar::EntryType::Directory,
            false => tar::EntryType::Regular,
        });
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(epoch);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, *bytes)?;
    }
    archive.into_inner()
}

/// `bytes` compressed, without a time stamp.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    let mut member = GZIP_HEAD.to_vec();
    member.extend(miniz_oxide::deflate::compress_to_vec(bytes, LEVEL));
    member.extend(sum.sum().to_le_bytes());
    // The size modulo 2^32, as the format has it.
    member.extend((bytes.len() as u32).to_le_bytes());
    member
}
