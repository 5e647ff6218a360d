//! The rank form of a model: every value of a row becomes one byte, exactly.
//!
//! **Problem.** A split compares a value with a threshold. Values are floats of 4 or 8 bytes, and a
//! vector register holds few of them.
//!
//! **Approach.** Let the thresholds that a model asks of one feature be sorted: its *cuts*. The
//! *rank* of a value is the number of cuts up to it, and `x < cut[k]` is `rank(x) <= k`.
//! LightGBM's `x <= cut[k]` is `x < next(cut[k])`, so that the next float is the cut there. A
//! *column* is what one byte can say of a feature to some of its splits: 255 consecutive cuts,
//! with missing values on one side. A categorical split has a column of its own with one cut.
//! So every split of every model is "the byte of my column is at most mine".
//!
//! Two kernels read the form:
//! * all nodes of a tree at once, for a block of [`BLOCK_ROWS`] rows: [`Split`]s level by level,
//!   and in pre-order for contributions;
//! * rows down trees: [`Step`]s in order of levels, two children side by side, over *keys*: `f32`
//!   values as unsigned numbers of the same order, missing ones at an end. Where splits of a model
//!   differ in what they take for missing, its rows have a *plane* of keys for each.
//!
//! **Proof sketch.** The cuts up to x are a prefix of the sorted cuts; cut k is in it if and only
//! if its length exceeds k. Byte 0 is at most, and byte 255 above, whatever a split says (at most
//! 254), so a missing value goes where the column says. For `f32` values cuts are rounded up to
//! `f32`: no `f32` lies between a number and that. An `f64` value is rounded down for its key, or
//! up where a cut lies between, see `keys`; only one does where no two cuts round up to the same.
//!
//! **Limits.** Trees of up to [`LEAVES_MAX`] leaves (leaf numbers are bytes, too), fewer than 2^16
//! columns, no NaN thresholds. A model with larger trees has steps only, and one beyond the other
//! limits is walked node by node. There are no steps where two cuts of a feature round up to the
//! same `f32`, keys are 2^16 or more, or a level of a tree is as wide.

pub(crate) mod check;
pub(crate) mod form;
pub(crate) mod keys;
pub(crate) mod quantize;

pub(crate) use albacore_simd::{Bytes, COLUMN_CUTS, LEAVES_MAX, Split, TABLE, key_of};

use crate::view::flag;

/// Leaf values behind the last tree's, so that a kernel can load a whole tree's table of values.
pub(crate) const LEAF_PADDING: usize = LEAVES_MAX;
/// A node of the walk: the largest key that goes left, and its column of keys with the way to the
/// left child above it (16 bits each); the right child is the next node. A leaf is its own left
/// child, asks column 0, which is never above anything, and has what it adds in the place of the
/// key: the bits of its `f32`, or its number among [`RankView::leaf_doubles`].
pub(crate) type Step = [u32; 2];

/// A feature that the model asks, see the fields of [`Asked::of_words`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its index in a row.
    pub(crate) feature: usize,
    pub(crate) cuts: usize,
    /// The number of its cuts.
    pub(crate) count: usize,
    /// Where its search table begins among those in `f32`.
    pub(crate) table: usize,
}

impl Asked {
    pub(crate) fn of_words(words: [u32; 4]) -> Self {
        let [feature, cuts, count, table] = words.map(|word| word as usize);
        Self {
            feature,
            cuts,
            count,
            table,
        }
    }

    /// Cuts per entry of the first stage, as a power of two: the first stage knows every
    /// `1 << shift`-th cut, the second all. Both are filled up with NaN, which no value reaches.
    pub(crate) fn shift(&self) -> u32 {
        (self.count + 1)
            .div_ceil(TABLE)
            .next_power_of_two()
            .trailing_zeros()
    }

    /// Length of the search table: the first stage, and the second unless the first has all cuts.
    pub(crate) fn table_length(&self) -> usize {
        match self.shift() {
            0 => TABLE,
            shift => TABLE + (TABLE << shift),
        }
    }
}

/// What a column says of its feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Column {
    /// Index among the asked features.
    pub(crate) asked: u32,
    /// The split's flags that matter: see [`Column::flags_of`].
    pub(crate) flags: u32,
    /// The first cut of the column, or the set of categories.
    pub(crate) start: u32,
}

impl Column {
    pub(crate) fn of_words(words: [u32; 4]) -> Self {
        let [asked, flags, start, _] = words;
        Self {
            asked,
            flags,
            start,
        }
    }

    /// With the byte of missing values of a column by order, see `RankForm::byte_of_missing`.
    pub(crate) fn words(self, missing: u8) -> [u32; 4] {
        [self.asked, self.flags, self.start, u32::from(missing)]
    }

    /// The flags of a split that decide what its column holds: where missing values go does not
    /// matter where nothing is missing.
    pub(crate) fn flags_of(flags: u8) -> u32 {
        let kinds = flag::MISSING_NAN | flag::MISSING_ZERO;
        u32::from(match flags & kinds {
            0 => flags & !(flag::DEFAULT_LEFT | flag::LEAF),
            _ => flags & !flag::LEAF,
        })
    }

    /// What decides the plane of keys that a column by order reads.
    pub(crate) fn plane(self) -> u32 {
        self.flags & u32::from(flag::MISSING_NAN | flag::MISSING_ZERO | flag::DEFAULT_LEFT)
    }

    /// Whether one of the bits is set.
    pub(crate) fn has(self, bits: u8) -> bool {
        self.flags & u32::from(bits) != 0
    }
}

/// The rank form, borrowed from an image. All empty where the model has none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RankView<'a> {
    /// [`Asked`] features, ascending.
    pub(crate) asked: &'a [[u32; 4]],
    /// Cuts of all asked features, ascending for each; a NaN, which no value reaches, at the end.
    pub(crate) cuts: &'a [f64],
    /// Search tables in `f32`, see [`Asked::shift`].
    pub(crate) tables: &'a [f32],
    /// [`Column`]s, ascending, so that those of a feature lie together.
    pub(crate) columns: &'a [[u32; 4]],
    pub(crate) splits: &'a [Split],
    /// Of each leaf: its node in the tree.
    pub(crate) leaf_nodes: &'a [u32],
    /// Of each leaf: its value, and [`LEAF_PADDING`] zeros. XGBoost's scalar leaves only.
    pub(crate) leaf_values: &'a [f32],
    /// Of each leaf: its value, and [`LEAF_PADDING`] zeros. The other libraries' models.
    pub(crate) leaf_doubles: &'a [f64],
    /// All trees' nodes for the walk; empty where there is none.
    pub(crate) steps: &'a [Step],
    /// The splits again, and their slots, level by level, so that what a split needs of its
    /// children was not worked out just before; behind them the twins: splits with two leaves.
    pub(crate) levels: &'a [Split],
    /// Of each plane of keys: what it takes for missing, as [`Column::flags`] say.
    pub(crate) planes: &'a [u32],
}

/// The smallest `f32` that is not below the number.
pub(crate) fn rounded_up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x {
        near.next_up()
    } else {
        near
    }
}

/// Keys of missing values: left of and right of every threshold's.
pub(crate) const KEY_MISSING: [u32; 2] = [u32::MAX - 1, 0];
/// The key of 0.
pub(crate) const KEY_ZERO: u32 = 1 << 31;

/// The smallest key that goes right of a cut.
pub(crate) fn key_of_cut(cut: f64) -> u32 {
    match cut.is_nan() {
        // No value reaches it.
        true => KEY_MISSING[0],
        false => key_of(rounded_up(cut)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_the_values_and_inside_of_the_missing_ones() {
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
        assert!(values.map(key_of).is_sorted_by(|a, b| a < b));
        assert_eq!(key_of(-0.0), key_of(0.0));
        let [right, left] = KEY_MISSING;
        assert!(left < key_of(f32::NEG_INFINITY) && key_of(f32::INFINITY) < right);
        assert_eq!(key_of(0.0), KEY_ZERO);
        assert_eq!(key_of_cut(f64::NAN), right);
    }

    #[test]
    fn rounding_up_keeps_what_single_precision_has_and_never_goes_down() {
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
    fn a_search_table_has_a_second_stage_from_32_cuts_on() {
        let lengths = [0, 31, 32, 63, 64, 255, 256].map(|count| {
            let asked = Asked {
                feature: 0,
                cuts: 0,
                count,
                table: 0,
            };
            (asked.shift(), asked.table_length())
        });
        let (one, two, three) = ((0, 32), (1, 96), (2, 160));
        assert_eq!(lengths, [one, one, two, two, three, (3, 288), (4, 544)]);
    }
}
