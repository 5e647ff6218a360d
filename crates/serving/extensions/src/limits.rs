//! Limits of the extensions, each with its reason.

/// Registered regions: each is an open file. Clients register one per tensor.
pub const REGIONS_MAX: usize = 256;

/// Size of a region name, which is stored and printed in errors.
pub const REGION_NAME_BYTES_MAX: usize = 253;

/// Region names in an error: gRPC clients accept trailers of 8 KiB by default.
pub const NAMES_SHOWN_MAX: usize = 8;

/// Size of the name of a shared memory object; the limit of the kernel (`NAME_MAX`).
pub const KEY_BYTES_MAX: usize = 255;

/// Size of a class without its label: a binary64 of 24 characters, a colon, an index of 10 digits,
/// a length prefix of four bytes, and the punctuation of JSON.
pub const CLASS_BYTES: usize = 48;

/// Size of a model repository call, which has only names and flags.
pub const REPOSITORY_BYTES_MAX: usize = 64 << 10;

/// Characters of a parameter name in an error.
pub const PARAMETER_CHARS_SHOWN: usize = 64;

/// Size of feature names and types in the metadata of a model; larger ones are omitted. gRPC
/// clients accept replies of 4 MiB by default.
pub const METADATA_NAMES_BYTES_MAX: usize = 2 << 20;
