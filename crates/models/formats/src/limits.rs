//! Bounds of this crate, with their reasons.
//!
//! Model files are untrusted: no count in a file is used before the announced bytes have been read,
//! and every loop over a file has a bound below.

/// Maximum depth of a tree, root to deepest leaf. Libraries grow trees of tens of levels; leaf-wise
/// growth on skewed data reaches hundreds. The bound keeps explicit stacks small.
pub const DEPTH_MAX: usize = 4096;

/// Maximum nodes of a tree: twice the largest leaf count that a library can train in practice, and
/// far below `u32::MAX`, so that offsets within a tree never overflow.
pub const TREE_NODES_MAX: usize = 1 << 26;

/// Maximum trees of a model.
pub const TREES_MAX: usize = 1 << 22;

/// Maximum input features: the width of a row. One row of this many `f64` takes 128 MiB.
pub const FEATURES_MAX: usize = 1 << 24;

/// Maximum output groups (classes or targets): a row of outputs must be small compared with the
/// model.
pub const GROUPS_MAX: usize = 1 << 16;

/// Category numbers are below this in both libraries (XGBoost rejects larger ones; a bitset of this
/// size takes 2 MiB).
pub const CATEGORY_MAX: u32 = 1 << 24;

/// Maximum category names of a file, over all columns: about 40 bytes each in memory, so 160 MiB.
pub const CATEGORY_NAMES_MAX: usize = 1 << 22;

/// Maximum bytes of the names of a column in XGBoost's tables, which are read as 64 bits each.
pub(crate) const CATEGORY_BYTES_MAX: usize = 1 << 26;

/// Maximum nesting of arrays and objects in a model file. XGBoost writes 8 levels; the readers are
/// recursive.
pub(crate) const NESTING_MAX: usize = 64;

/// Maximum components of a library version: major, minor, patch, and one in reserve.
pub(crate) const VERSION_PARTS_MAX: usize = 4;

/// Maximum bytes of file content in a message: enough to recognize it, without flooding a log.
pub(crate) const EXCERPT_MAX: usize = 80;

/// Maximum bitset words (32 categories each) of the rewritten categorical splits of a model of
/// XGBoost 1.6 or 1.7: 32 MiB. A split on a thousand categories takes 32.
pub const REWRITTEN_WORDS_MAX: usize = 1 << 22;

/// Maximum keys that are read to identify a JSON file that is not a model.
pub(crate) const FOREIGN_KEYS_MAX: usize = 64;
