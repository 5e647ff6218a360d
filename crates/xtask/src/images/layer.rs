//! The layer of an image: one program in a compressed tar, byte for byte the same whoever makes it.
//!
//! The compressor is named (`miniz_oxide`), not `flate2`, whose output depends on which of its
//! backends the rest of the build asked for; its gzip frame is written here, without a time.

use std::io;

/// Fastest to best is 0 to 10; 9 is where larger values stop paying for their time.
const LEVEL: u8 = 9;

/// A gzip member of RFC 1952: deflate, no flags, no time, unknown system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A layer twice: as its digest in the image's configuration sees it, and as it travels.
pub struct Layer {
    pub tar: Vec<u8>,
    pub gzip: Vec<u8>,
}

/// The layer whose only file is `program` at `/name`, owned by root and writable by nobody, with
/// the time `epoch`.
///
/// # Errors
/// A name that a tar cannot hold.
pub fn layer(name: &str, program: &[u8], epoch: u64) -> io::Result<Layer> {
    let tar = tar(&[(name, 0o555, program)], epoch)?;
    let gzip = gzip(&tar);
    Ok(Layer { tar, gzip })
}

/// A tar of `files` (path, mode, bytes) in their order.
pub(super) fn tar(files: &[(&str, u32, &[u8])], epoch: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(epoch);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, *bytes)?;
    }
    archive.into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    let mut member = GZIP_HEAD.to_vec();
    member.extend(miniz_oxide::deflate::compress_to_vec(bytes, LEVEL));
    member.extend(sum.sum().to_le_bytes());
    // The size modulo 2^32, as the format has it.
    member.extend((bytes.len() as u32).to_le_bytes());
    member
}
