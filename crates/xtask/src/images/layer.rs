//! The layer of an image: its programs in a compressed tar that is reproducible byte for byte.
//!
//! Compressed with `miniz_oxide` instead of `flate2`, whose output depends on the backend selected
//! by the features of the build. The gzip frame is written here, without a timestamp.

use std::io;

/// Compression level: 0 is fastest, 10 is smallest; above 9 the gain is not worth the time.
const LEVEL: u8 = 9;

/// Header of a gzip member (RFC 1952): deflate, no flags, no time, unknown system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A layer, uncompressed (for the digest in the configuration) and compressed (as stored).
pub struct Layer {
    pub tar: Vec<u8>,
    pub gzip: Vec<u8>,
}

/// The layer with these programs (name, content) in the root directory, owned by root and not
/// writable, with the timestamp `epoch`.
///
/// # Errors
/// A name cannot be stored in a tar.
pub fn layer(programs: &[(&str, &[u8])], epoch: u64) -> io::Result<Layer> {
    let files: Vec<(&str, u32, &[u8])> = programs
        .iter()
        .map(|&(name, bytes)| (name, 0o555, bytes))
        .collect();
    let tar = tar(&files, epoch)?;
    let gzip = gzip(&tar);
    Ok(Layer { tar, gzip })
}

/// A tar of `files` (path, mode, content) in this order. A path that ends with a slash is a
/// directory.
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

/// Compresses `bytes` without a timestamp.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    let mut member = GZIP_HEAD.to_vec();
    member.extend(miniz_oxide::deflate::compress_to_vec(bytes, LEVEL));
    member.extend(sum.sum().to_le_bytes());
    // The size modulo 2^32, as specified by the format.
    member.extend((bytes.len() as u32).to_le_bytes());
    member
}
