//! Every bound of this crate, with its reason.
//!
//! Model files come from users: no count in a file is trusted before the bytes that it announces
//! have been read, and every loop over a file has a bound below.

/// Levels of a tree, root to deepest leaf. Libraries grow trees of tens of levels; leaf-wise
/// growth on skewed data reaches hundreds. The bound keeps explicit stacks small.
pub const DEPTH_MAX: usize = 4096;

/// Nodes of one tree: twice the largest leaf count that a library can train in practice, and far
/// below `u32::MAX`, so that offsets within a tree never overflow.
pub const TREE_NODES_MAX: usize = 1 << 26;

/// Trees of a model.
pub const TREES_MAX: usize = 1 << 22;

/// Input features: the width of a row. One row of this many `f64` is 128 MiB.
pub const FEATURES_MAX: usize = 1 << 24;

/// Output groups (classes or targets): a row of outputs must stay small beside the model.
pub const GROUPS_MAX: usize = 1 << 16;

/// Category numbers are below this, in both libraries (XGBoost refuses more; a bitset of this
/// size is 2 MiB).
pub const CATEGORY_MAX: u32 = 1 << 24;

/// Texts of categories in a file, of all columns: some 40 bytes each in memory, so 160 MiB.
pub const CATEGORY_TEXTS_MAX: usize = 1 << 22;

/// Bytes of the texts of a column in XGBoost's tables, which are read as 64 bits each.
pub(crate) const CATEGORY_BYTES_MAX: usize = 1 << 26;

/// Nesting of arrays and objects in a model file. XGBoost writes 8 levels; the readers are
/// recursive.
pub(crate) const NESTING_MAX: usize = 64;

/// Numbers of a library's version: major, minor, patch, and a reserve of one.
pub(crate) const VERSION_PARTS_MAX: usize = 4;

/// Bytes of a file's text that a message quotes: enough to recognize it, too few to flood a log.
pub(crate) const EXCERPT_MAX: usize = 80;

/// Words of 32 categories that rewritten categorical splits of XGBoost 1.6 and 1.7 may take in a
/// model: 32 MiB. A split on a thousand categories takes 32.
pub const REWRITTEN_WORDS_MAX: usize = 1 << 22;

/// Keys that are read to recognize a JSON file that is no model.
pub(crate) const FOREIGN_KEYS_MAX: usize = 64;
