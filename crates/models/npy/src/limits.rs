//! Every bound of this crate, with its reason.

/// Largest file read, in bytes: beyond it a typing error (a disk image, a dump) is likelier than
/// rows.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 30;

/// Longest header in bytes: numpy itself refuses longer ones.
pub(crate) const NPY_HEADER_BYTES_MAX: usize = 10_000;
