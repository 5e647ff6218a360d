//! Byte columns of a block of rows, see `layout::binned`.

use albacore_formats::Library;
use albacore_simd::Simd;

use crate::layout::binned::{
    BinColumn, COLUMN_CUTS, RowBytes, SplitFeature, SplitFeatureWords, bin_of, direction_byte,
};
use crate::layout::ensemble::{EnsembleView, flag};
use crate::limits::BLOCK_ROWS;
use crate::rows::{Rows, ZERO_MAX};

/// Memory of a block, reused by subsequent calls.
#[derive(Clone, Debug)]
pub(crate) struct RowBlock {
    /// One byte per row for each column.
    pub(crate) columns: Vec<RowBytes>,
    pub(crate) rows: usize,
    /// Values of 16 features.
    f32s: Box<[[f32; BLOCK_ROWS]; 16]>,
    /// Bins of one feature.
    bins: Box<[u32; BLOCK_ROWS]>,
}

impl Default for RowBlock {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            rows: 0,
            f32s: Box::new([[0.0; BLOCK_ROWS]; 16]),
            bins: Box::new([0; BLOCK_ROWS]),
        }
    }
}

impl RowBlock {
    /// Bins up to [`BLOCK_ROWS`] rows. Bytes after the last row are unspecified.
    pub(crate) fn fill(
        &mut self,
        view: &EnsembleView<'_>,
        library: Library,
        rows: Rows<'_>,
        simd: Simd,
    ) {
        self.rows = rows.values() / view.features;
        self.columns
            .resize(view.binned.columns.len(), RowBytes::ZERO);
        match library {
            Library::Xgboost => self.fill_f32s(view, rows, simd),
            // No `f32` lies between a cut and its rounded value.
            _ if matches!(rows, Rows::F32(_)) => self.fill_f32s(view, rows, simd),
            Library::Lightgbm | Library::Sklearn => self.fill_f64s(view, rows),
        }
    }

    /// The values are `f32`. The cuts send all values that LightGBM treats as zeros to the same
    /// side.
    fn fill_f32s(&mut self, view: &EnsembleView<'_>, rows: Rows<'_>, simd: Simd) {
        let form = &view.binned;
        let mut columns = self.columns.iter_mut().zip(form.columns).peekable();
        let (mut remaining, mut index) = (form.split_features, 0_u32);
        // bound: each iteration consumes at least one feature.
        while let Some(&[first, ..]) = remaining.first() {
            // Up to 16 adjacent features at a time.
            let end = remaining.partition_point(|words| words[0] < first + 16);
            let (some, others) = remaining.split_at(end);
            remaining = others;
            let first = copy_features(&mut self.f32s, some, view.features, rows, simd);
            for (offset, &words) in some.iter().enumerate() {
                let feature = SplitFeature::from_words(words);
                let values = &self.f32s[first.map_or(offset, |first| feature.feature - first)];
                let table = &form.tables[feature.table..][..feature.table_length()];
                simd.bins(values, table, feature.cut_count, &mut self.bins);
                while let Some((bytes, words)) = columns.next_if(|(_, words)| words[0] == index) {
                    let column = BinColumn::from_words(*words);
                    if is_plain(column) {
                        let missing = BinColumn::missing_byte(*words);
                        simd.bin_bytes(values, &self.bins, column.start, missing, bytes);
                        continue;
                    }
                    for (row, byte) in bytes.0.iter_mut().enumerate() {
                        let x = f64::from(values[row]);
                        *byte = byte_of(view, column, x, self.bins[row]);
                    }
                }
                index += 1;
            }
        }
    }

    /// LightGBM and scikit-learn: the values are `f64`.
    fn fill_f64s(&mut self, view: &EnsembleView<'_>, rows: Rows<'_>) {
        let form = &view.binned;
        let mut columns = self.columns.iter_mut().zip(form.columns).peekable();
        let mut values = [0.0; BLOCK_ROWS];
        for (&words, index) in form.split_features.iter().zip(0_u32..) {
            let split_feature = SplitFeature::from_words(words);
            let SplitFeature { feature, .. } = split_feature;
            let cuts = split_feature.cuts(form.cuts);
            match rows {
                Rows::F32(x) => for_each_row(x, view.features, feature, |row, x| {
                    values[row] = f64::from(x);
                }),
                Rows::F64(x) => for_each_row(x, view.features, feature, |row, x| {
                    values[row] = x;
                }),
            }
            for (bin, &x) in self.bins.iter_mut().zip(&values) {
                *bin = bin_of(cuts, x);
            }
            while let Some((bytes, words)) = columns.next_if(|(_, words)| words[0] == index) {
                let column = BinColumn::from_words(*words);
                for (row, byte) in bytes.0.iter_mut().enumerate() {
                    *byte = byte_of(view, column, values[row], self.bins[row]);
                }
            }
        }
    }
}

/// Returns whether the column is numerical and does not treat zeros as missing values.
fn is_plain(column: BinColumn) -> bool {
    !column.has(flag::CATEGORICAL | flag::MISSING_ZERO)
}

/// Calls `visit` with row index and feature value for each row of a block.
fn for_each_row<T: Copy>(
    x: &[T],
    features: usize,
    feature: usize,
    mut visit: impl FnMut(usize, T),
) {
    let rows = x.chunks_exact(features).take(BLOCK_ROWS);
    for (row, values) in rows.enumerate() {
        visit(row, values[feature]);
    }
}

/// With fewer features than this they are copied one by one.
const TRANSPOSE_FROM: usize = 3;

/// Copies the values of split features, all within 16 adjacent features, feature by feature.
/// Returns the first of the 16 features if all of them were copied, `None` if only the split
/// features were.
fn copy_features(
    f32s: &mut [[f32; BLOCK_ROWS]; 16],
    split_features: &[SplitFeatureWords],
    features: usize,
    rows: Rows<'_>,
    simd: Simd,
) -> Option<usize> {
    if let Rows::F32(x) = rows
        && split_features.len() >= TRANSPOSE_FROM
        && features >= 16
        && x.len() >= BLOCK_ROWS * features
    {
        let first = (split_features[0][0] as usize).min(features - 16);
        simd.transpose(x, features, first, f32s);
        return Some(first);
    }
    for (values, words) in f32s.iter_mut().zip(split_features) {
        let feature = words[0] as usize;
        match rows {
            Rows::F32(x) => for_each_row(x, features, feature, |row, x| values[row] = x),
            Rows::F64(x) => for_each_row(x, features, feature, |row, x| values[row] = x as f32),
        }
    }
    None
}

/// Returns the byte of a column for a prepared value with a known bin.
pub(super) fn byte_of(view: &EnsembleView<'_>, column: BinColumn, x: f64, bin: u32) -> u8 {
    let is_zero = x.is_nan() && !column.has(flag::MISSING_NAN);
    let x = if is_zero { 0.0 } else { x };
    if x.is_nan() || column.has(flag::MISSING_ZERO) && x.abs() <= ZERO_MAX {
        return direction_byte(column.has(flag::DEFAULT_LEFT));
    }
    if column.is_categorical() {
        let inclusive = column.has(flag::INCLUSIVE);
        let set = column.start as usize;
        return direction_byte(view.sets().has(set, x, inclusive) == inclusive);
    }
    let bin = if is_zero {
        let words = view.binned.split_features[column.split_feature as usize];
        bin_of(SplitFeature::from_words(words).cuts(view.binned.cuts), 0.0)
    } else {
        bin
    };
    bin.saturating_sub(column.start).min(COLUMN_CUTS as u32) as u8
}
