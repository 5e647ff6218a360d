//! Limits of the extensions, each with its reason.

/// Regions that are registered at the same time: each is an open file. Clients register one for
/// each tensor.
pub const REGIONS_MAX: usize = 256;

/// Bytes of the name of a region: it is kept, and printed in errors.
pub const REGION_NAME_BYTES_MAX: usize = 253;

/// Names of regions in an error: gRPC clients accept trailers of 8 KiB by default.
pub const NAMES_SHOWN_MAX: usize = 8;

/// Bytes of the name of a shared memory object, as the kernel has it.
pub const KEY_BYTES_MAX: usize = 255;

/// Bytes of a class without its label: a binary64 of 24 characters, a colon, an index of 10 digits,
/// its length of four bytes and the punctuation of JSON.
pub const CLASS_BYTES: usize = 48;

/// Bytes of a call for the model repository: it has names and flags.
pub const REPOSITORY_BYTES_MAX: usize = 64 << 10;

/// Characters of the name of a parameter in an error.
pub const PARAMETER_CHARS_SHOWN: usize = 64;

/// Bytes of feature names and types in a model's metadata; more are omitted. gRPC clients accept
/// replies of 4 MiB by default.
pub const METADATA_NAMES_BYTES_MAX: usize = 2 << 20;
