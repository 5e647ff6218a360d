//! From rows to the columns of a block: the exact image of the values.

use super::{Asked, Bytes, COLUMN_CUTS, Column};
use crate::limits::BLOCK_ROWS;
use crate::rows::Rows;
use crate::view::{EnsembleView, ZERO_MAX, flag};
use albacore_formats::Library;
use albacore_simd::Simd;

/// The memory of a block, reused from call to call.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Of each column: a byte for each row.
    pub(crate) columns: Vec<Bytes>,
    singles: Box<[[f32; BLOCK_ROWS]; 16]>,
    ranks: Box<[u32; BLOCK_ROWS]>,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            singles: Box::new([[0.0; BLOCK_ROWS]; 16]),
            ranks: Box::new([0; BLOCK_ROWS]),
        }
    }
}

impl Block {
    /// Quantizes up to [`BLOCK_ROWS`] rows. Bytes behind the last row are of no meaning.
    pub(crate) fn fill(
        &mut self,
        view: &EnsembleView<'_>,
        library: Library,
        rows: Rows<'_>,
        simd: Simd,
    ) {
        self.columns.resize(view.ranks.columns.len(), Bytes::ZERO);
        match library {
            Library::Xgboost => self.fill_singles(view, rows, simd),
            // No `f32` lies between a cut and what it is rounded up to.
            _ if matches!(rows, Rows::F32(_)) => self.fill_singles(view, rows, simd),
            Library::Lightgbm | Library::Sklearn => self.fill_doubles(view, rows),
        }
    }

    /// The values are `f32`. That LightGBM takes small ones for zeros is in the cuts.
    fn fill_singles(&mut self, view: &EnsembleView<'_>, rows: Rows<'_>, simd: Simd) {
        let form = &view.ranks;
        let mut columns = self.columns.iter_mut().zip(form.columns).peekable();
        let (mut rest, mut index) = (form.asked, 0_u32);
        // bound: each turn takes a feature at least.
        while let Some(&[first, ..]) = rest.first() {
            // Up to 16 neighboring features at a time.
            let end = rest.partition_point(|words| words[0] < first + 16);
            let (some, others) = rest.split_at(end);
            rest = others;
            let first = take(&mut self.singles, some, view.features, rows, simd);
            for (place, &words) in some.iter().enumerate() {
                let asked = Asked::of_words(words);
                let values = &self.singles[first.map_or(place, |first| asked.feature - first)];
                let table = &form.tables[asked.table..][..asked.table_length()];
                simd.ranks(values, (table, asked.count), &mut self.ranks);
                while let Some((bytes, words)) = columns.next_if(|(_, words)| words[0] == index) {
                    let column = Column::of_words(*words);
                    if is_plain(column) {
                        let missing = words[3] as u8;
                        simd.column(values, &self.ranks, (column.start, missing), bytes);
                        continue;
                    }
                    for (row, byte) in bytes.0.iter_mut().enumerate() {
                        let x = f64::from(values[row]);
                        *byte = byte_of(view, column, x, self.ranks[row]);
                    }
                }
                index += 1;
            }
        }
    }

    /// LightGBM and scikit-learn: the values are `f64`.
    fn fill_doubles(&mut self, view: &EnsembleView<'_>, rows: Rows<'_>) {
        let form = &view.ranks;
        let mut columns = self.columns.iter_mut().zip(form.columns).peekable();
        let mut values = [0.0; BLOCK_ROWS];
        for (&words, index) in form.asked.iter().zip(0_u32..) {
            let asked = Asked::of_words(words);
            let cuts = &form.cuts[asked.cuts..][..asked.count];
            match rows {
                Rows::F32(x) => each(x, view.features, asked.feature, |row, x| {
                    values[row] = f64::from(x);
                }),
                Rows::F64(x) => each(x, view.features, asked.feature, |row, x| {
                    values[row] = x;
                }),
            }
            for (rank, &x) in self.ranks.iter_mut().zip(&values) {
                *rank = rank_of(cuts, x);
            }
            while let Some((bytes, words)) = columns.next_if(|(_, words)| words[0] == index) {
                let column = Column::of_words(*words);
                for (row, byte) in bytes.0.iter_mut().enumerate() {
                    *byte = byte_of(view, column, values[row], self.ranks[row]);
                }
            }
        }
    }
}

/// Whether the column is by order, with zeros that are no missing values.
fn is_plain(column: Column) -> bool {
    !column.has(flag::CATEGORICAL | flag::MISSING_ZERO)
}

/// Calls `take` with the place and value of a feature, for each row of a block.
fn each<T: Copy>(x: &[T], features: usize, feature: usize, mut take: impl FnMut(usize, T)) {
    let rows = x.chunks_exact(features).take(BLOCK_ROWS);
    for (row, values) in rows.enumerate() {
        take(row, values[feature]);
    }
}

/// Fewer features than this are taken one by one.
const TOGETHER_FROM: usize = 3;

/// The values of asked features, all among 16 neighbors, feature by feature: from the one that is
/// returned on, or of the asked ones alone.
fn take(
    singles: &mut [[f32; BLOCK_ROWS]; 16],
    asked: &[[u32; 4]],
    features: usize,
    rows: Rows<'_>,
    simd: Simd,
) -> Option<usize> {
    if let Rows::F32(x) = rows
        && asked.len() >= TOGETHER_FROM
        && features >= 16
        && x.len() >= BLOCK_ROWS * features
    {
        let first = (asked[0][0] as usize).min(features - 16);
        simd.transpose(x, features, first, singles);
        return Some(first);
    }
    for (values, words) in singles.iter_mut().zip(asked) {
        let feature = words[0] as usize;
        match rows {
            Rows::F32(x) => each(x, features, feature, |row, x| values[row] = x),
            Rows::F64(x) => each(x, features, feature, |row, x| values[row] = x as f32),
        }
    }
    None
}

/// The number of cuts up to a value; 0 for NaN.
pub(super) fn rank_of(cuts: &[f64], x: f64) -> u32 {
    cuts.partition_point(|&cut| cut <= x) as u32
}

/// What a column says of a prepared value whose rank is known.
pub(super) fn byte_of(view: &EnsembleView<'_>, column: Column, x: f64, rank: u32) -> u8 {
    let is_zero = x.is_nan() && !column.has(flag::MISSING_NAN);
    let x = if is_zero { 0.0 } else { x };
    if x.is_nan() || column.has(flag::MISSING_ZERO) && x.abs() <= ZERO_MAX {
        return side(column.has(flag::DEFAULT_LEFT));
    }
    if column.has(flag::CATEGORICAL) {
        let inclusive = column.has(flag::INCLUSIVE);
        let set = column.start as usize;
        return side(view.sets().has(set, x, inclusive) == inclusive);
    }
    let rank = if is_zero {
        let asked = Asked::of_words(view.ranks.asked[column.asked as usize]);
        rank_of(&view.ranks.cuts[asked.cuts..][..asked.count], 0.0)
    } else {
        rank
    };
    rank.saturating_sub(column.start).min(COLUMN_CUTS as u32) as u8
}

/// The byte that is at most, or above, what every split says.
pub(super) fn side(is_left: bool) -> u8 {
    if is_left { 0 } else { u8::MAX }
}
