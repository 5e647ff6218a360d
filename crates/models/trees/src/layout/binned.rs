//! The binned form of a model: each value of a row is encoded exactly as one byte.
//!
//! **Problem.** A split compares a value with a threshold. Values are floats of 4 or 8 bytes, of
//! which a vector register holds few.
//!
//! **Approach.** The sorted thresholds of a feature over the whole model are its *cuts* (as in
//! XGBoost's histograms). The *bin* of a value is the number of cuts at or below it, and
//! `x < cut[k]` is equivalent to `bin(x) <= k`. LightGBM's `x <= cut[k]` is `x < next(cut[k])`, so
//! there the next float is the cut. A *column* has one byte per row for one feature: the position
//! of the value among 255 consecutive cuts; missing values get the byte of one side. A categorical
//! split has a separate column with one cut. So every split of every model tests whether the byte
//! of its column is at most the byte of the split.
//!
//! Two kernels read the form:
//! * `kernel::blocks`, all nodes of a tree at once for a block of rows: [`ColumnSplit`]s level by
//!   level. SHAP of a block reads them in pre-order;
//! * `kernel::walk`, rows down trees: [`WalkNode`]s in level order, two children adjacent, over
//!   *keys*: `f32` values as unsigned integers of the same order, with missing values at one end.
//!   If the splits of a model differ in which values are missing, its rows have a *plane* of keys
//!   for each treatment.
//!
//! **Proof sketch.** The cuts at or below x are a prefix of the sorted cuts; cut k is in it if and
//! only if its length exceeds k. Byte 0 is at most, and byte 255 above, the byte of every split (at
//! most 254), so a missing value goes in the direction of its column. For `f32` values, cuts are
//! rounded up to `f32`: no `f32` lies between a number and the result. An `f64` value is rounded
//! down for its key, or up if a cut lies between, see `encode::keys`; the key is unambiguous
//! because no two cuts of the feature round up to the same `f32`.
//!
//! **Limits.** Trees of up to [`LEAVES_MAX`] leaves (leaf numbers are bytes, too), fewer than 2^16
//! columns, no NaN thresholds. A model with larger trees has only walk nodes, and one that exceeds
//! the other limits is walked node by node. There are no walk nodes if two cuts of a feature round
//! up to the same `f32`, a row has 2^16 keys or more, or a level of a tree has 2^16 nodes or more.

pub(crate) use albacore_simd::{
    COLUMN_CUTS, ColumnSplit, LEAVES_MAX, RowBytes, TABLE, ordered_key,
};

use albacore_formats::flag;

/// Padding after the leaf values of the last tree, so that a kernel can load a table of
/// [`LEAVES_MAX`] values for every tree.
pub(crate) const LEAF_PADDING: usize = LEAVES_MAX;

/// Encoding of a [`WalkNode`].
pub(crate) type WalkNodeWords = [u32; 2];

/// A node of the walk kernel. A leaf is its own left child and compares key 0, which goes left at
/// every split, so that a walk may take more steps than its path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkNode {
    /// Largest key that goes left. For a leaf: the bits of its `f32` value, or its index in
    /// [`BinnedView::leaf_f64s`].
    pub(crate) last_left: u32,
    /// Index of the key to compare, below 2^16.
    pub(crate) key: usize,
    /// Distance to the left child, below 2^16; the right child follows it. 0 for a leaf.
    pub(crate) left_offset: usize,
}

impl WalkNode {
    #[inline(always)]
    pub(crate) fn from_words([last_left, packed]: WalkNodeWords) -> Self {
        Self {
            last_left,
            key: (packed & 0xffff) as usize,
            left_offset: (packed >> 16) as usize,
        }
    }

    pub(crate) fn words(self) -> WalkNodeWords {
        let packed = (self.left_offset as u32) << 16 | self.key as u32;
        [self.last_left, packed]
    }
}

/// Encoding of a [`SplitFeature`].
pub(crate) type SplitFeatureWords = [u32; 4];

/// A feature used by at least one split of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SplitFeature {
    /// Index in a row.
    pub(crate) feature: usize,
    /// Index of the first cut.
    pub(crate) first_cut: usize,
    /// Number of cuts.
    pub(crate) cut_count: usize,
    /// Start of the search table.
    pub(crate) table: usize,
}

impl SplitFeature {
    pub(crate) fn from_words(words: SplitFeatureWords) -> Self {
        let [feature, first_cut, cut_count, table] = words.map(|word| word as usize);
        Self {
            feature,
            first_cut,
            cut_count,
            table,
        }
    }

    pub(crate) fn words(self) -> SplitFeatureWords {
        [self.feature, self.first_cut, self.cut_count, self.table].map(|word| word as u32)
    }

    /// Returns the cuts of the feature.
    pub(crate) fn cuts<'a>(&self, all: &'a [f64]) -> &'a [f64] {
        &all[self.first_cut..][..self.cut_count]
    }

    /// Returns the number of cuts per first-stage entry of the search table, as a power of two: the
    /// first stage has every `1 << shift`-th cut, the second all. Both are padded with NaN, which
    /// is above every value.
    pub(crate) fn shift(&self) -> u32 {
        (self.cut_count + 1)
            .div_ceil(TABLE)
            .next_power_of_two()
            .trailing_zeros()
    }

    /// Returns the length of the search table: the first stage, and the second unless the first has
    /// all cuts.
    pub(crate) fn table_length(&self) -> usize {
        match self.shift() {
            0 => TABLE,
            shift => TABLE + (TABLE << shift),
        }
    }
}

/// Encoding of a [`BinColumn`].
pub(crate) type BinColumnWords = [u32; 4];

/// A column of bytes, one per row of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BinColumn {
    /// Index among the split features.
    pub(crate) split_feature: u32,
    /// Relevant flags of its splits, see [`BinColumn::flags_of`].
    pub(crate) flags: u32,
    /// First cut of the column, or index of the category set.
    pub(crate) start: u32,
}

impl BinColumn {
    #[inline(always)]
    pub(crate) fn from_words([split_feature, flags, start, _]: BinColumnWords) -> Self {
        Self {
            split_feature,
            flags,
            start,
        }
    }

    /// Returns the byte of missing values in a numerical column.
    pub(crate) fn missing_byte(words: BinColumnWords) -> u8 {
        words[3] as u8
    }

    pub(crate) fn words(self, missing_byte: u8) -> BinColumnWords {
        [
            self.split_feature,
            self.flags,
            self.start,
            u32::from(missing_byte),
        ]
    }

    /// Returns the flags of a split that determine the bytes of its column: the default direction
    /// is irrelevant for a split without missing values.
    pub(crate) fn flags_of(flags: u8) -> u32 {
        let kinds = flag::MISSING_NAN | flag::MISSING_ZERO;
        u32::from(match flags & kinds {
            0 => flags & !(flag::DEFAULT_LEFT | flag::LEAF),
            _ => flags & !flag::LEAF,
        })
    }

    /// Returns the flags that determine the key plane of the splits of a numerical column.
    pub(crate) fn key_plane(self) -> u32 {
        self.flags & u32::from(flag::MISSING_NAN | flag::MISSING_ZERO | flag::DEFAULT_LEFT)
    }

    /// Returns whether any of the flags is set.
    pub(crate) fn has(self, flags: u8) -> bool {
        self.flags & u32::from(flags) != 0
    }

    pub(crate) fn is_categorical(self) -> bool {
        self.has(flag::CATEGORICAL)
    }
}

/// The binned form, borrowed from an image. All slices are empty if the model has none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BinnedView<'a> {
    /// [`SplitFeature`]s, ascending.
    pub(crate) split_features: &'a [SplitFeatureWords],
    /// Cuts of all split features, ascending within each; NaN, above every value, comes last.
    pub(crate) cuts: &'a [f64],
    /// Search tables in `f32`, see [`SplitFeature::shift`].
    pub(crate) tables: &'a [f32],
    /// [`BinColumn`]s, ascending, so that those of a feature are adjacent.
    pub(crate) columns: &'a [BinColumnWords],
    /// Splits of each tree in pre-order.
    pub(crate) splits: &'a [ColumnSplit],
    /// Node of each leaf in its tree.
    pub(crate) leaf_nodes: &'a [u32],
    /// Value of each leaf, then [`LEAF_PADDING`] zeros. Only for XGBoost's scalar leaves.
    pub(crate) leaf_values: &'a [f32],
    /// Value of each leaf, then [`LEAF_PADDING`] zeros. For models of the other libraries.
    pub(crate) leaf_f64s: &'a [f64],
    /// [`WalkNode`]s of all trees; empty if the model cannot be walked by keys.
    pub(crate) walk_nodes: &'a [WalkNodeWords],
    /// The splits and their slots again, in level order, so that a split does not depend on the
    /// result computed just before it; splits with two leaves are last.
    pub(crate) level_order: &'a [ColumnSplit],
    /// Flags of each key plane, see [`BinColumn::key_plane`].
    pub(crate) key_planes: &'a [u32],
}

impl BinnedView<'_> {
    /// Returns the layout of the keys of a row with `features` values.
    pub(crate) fn key_layout(&self, features: usize) -> KeyLayout {
        KeyLayout {
            split_features: self.split_features.len(),
            features,
            planes: self.key_planes.len(),
        }
    }
}

/// Layout of the keys of a row: a key below all others, then the planes, then one key per
/// categorical column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyLayout {
    pub(crate) split_features: usize,
    /// Number of features, the width of a row.
    pub(crate) features: usize,
    pub(crate) planes: usize,
}

impl KeyLayout {
    /// Returns whether a plane has a key for every feature instead of only the split features: then
    /// the values of a row are converted in place, several times as fast as gathering values from
    /// it.
    pub(crate) fn is_dense(self) -> bool {
        self.features <= 4 * self.split_features
    }

    /// Returns the number of keys of a plane.
    pub(crate) fn plane_width(self) -> usize {
        match self.is_dense() {
            true => self.features,
            false => self.split_features,
        }
    }

    /// Returns the index of a feature's key in a plane.
    pub(crate) fn index(self, plane: usize, split_feature: usize, feature: usize) -> usize {
        let index = match self.is_dense() {
            true => feature,
            false => split_feature,
        };
        1 + plane * self.plane_width() + index
    }

    /// Returns the index of the key of the first categorical column.
    pub(crate) fn categorical_start(self) -> usize {
        1 + self.planes * self.plane_width()
    }
}

/// Returns the number of cuts at or below a value; 0 for NaN.
pub(crate) fn bin_of(cuts: &[f64], x: f64) -> u32 {
    cuts.partition_point(|&cut| cut <= x) as u32
}

/// Returns the byte that goes in this direction at every split.
pub(crate) fn direction_byte(goes_left: bool) -> u8 {
    if goes_left { 0 } else { u8::MAX }
}

/// Returns the smallest `f32` that is at least `x`.
pub(crate) fn rounded_up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x {
        near.next_up()
    } else {
        near
    }
}

/// Keys of missing values that go right, or left, at every split.
pub(crate) const KEY_MISSING: [u32; 2] = [u32::MAX - 1, 0];
/// Key of 0.
pub(crate) const KEY_ZERO: u32 = 1 << 31;

/// Returns the smallest key that goes right at a cut.
pub(crate) fn key_of_cut(cut: f64) -> u32 {
    match cut.is_nan() {
        // NaN is above every value.
        true => KEY_MISSING[0],
        false => ordered_key(rounded_up(cut)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_preserve_the_order_of_values_between_the_missing_keys() {
        let tiny = f32::from_bits(1);
        let values = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -tiny,
            0.0,
            tiny,
            1.0,
            f32::MAX,
            f32::INFINITY,
        ];
        assert!(values.map(ordered_key).is_sorted_by(|a, b| a < b));
        assert_eq!(ordered_key(-0.0), ordered_key(0.0));
        let [right, left] = KEY_MISSING;
        assert!(left < ordered_key(f32::NEG_INFINITY) && ordered_key(f32::INFINITY) < right);
        assert_eq!(ordered_key(0.0), KEY_ZERO);
        assert_eq!(key_of_cut(f64::NAN), right);
    }

    #[test]
    fn rounding_up_keeps_exact_f32_values_and_never_rounds_down() {
        for x in [0.0, -1.5, f64::INFINITY, f64::from(f32::MAX)] {
            assert_eq!(f64::from(rounded_up(x)), x);
        }
        assert_eq!(rounded_up(0.1_f64), (0.1_f32).max(0.1_f64 as f32));
        assert_eq!(rounded_up(1.0_f64.next_up()), 1.0_f32.next_up());
        assert_eq!(rounded_up(1e300), f32::INFINITY);
        assert_eq!(rounded_up(-1e300), f32::MIN);
        assert_eq!(rounded_up(5e-324), f32::from_bits(1));
    }

    #[test]
    fn a_search_table_has_a_second_stage_from_32_cuts() {
        let lengths = [0, 31, 32, 63, 64, 255, 256].map(|count| {
            let feature = SplitFeature {
                feature: 0,
                first_cut: 0,
                cut_count: count,
                table: 0,
            };
            (feature.shift(), feature.table_length())
        });
        let (one, two, three) = ((0, 32), (1, 96), (2, 160));
        assert_eq!(lengths, [one, one, two, two, three, (3, 288), (4, 544)]);
    }
}
