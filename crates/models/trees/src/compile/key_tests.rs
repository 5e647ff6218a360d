//! Key comparisons of splits, see `layout::binned`.

use crate::layout::binned::{BinColumn, BinnedView, KeyLayout, SplitFeature, key_of_cut};

/// Computes the key comparison of a split in the binned form.
pub(super) struct KeyTests<'a> {
    form: BinnedView<'a>,
    layout: KeyLayout,
    /// Index of the key of each categorical column.
    categorical: Vec<u32>,
    /// Number of keys of a row.
    pub(super) key_count: usize,
}

impl<'a> KeyTests<'a> {
    /// Requires the split features, cuts, columns and planes of the form; `features` is the width
    /// of a row.
    pub(super) fn new(form: BinnedView<'a>, features: usize) -> Self {
        let layout = form.key_layout(features);
        let mut next = layout.categorical_start() as u32;
        let columns = form.columns.iter().map(|&words| {
            let key = next;
            next += u32::from(BinColumn::from_words(words).is_categorical());
            key
        });
        Self {
            categorical: columns.collect(),
            form,
            layout,
            key_count: next as usize,
        }
    }

    /// Returns the smallest key that goes right at a split, and the index of the key to compare;
    /// the split is given by its column and its byte there.
    pub(super) fn of_split(&self, column: usize, byte: usize) -> [u32; 2] {
        let form = &self.form;
        let bin_column = BinColumn::from_words(form.columns[column]);
        if bin_column.is_categorical() {
            return [1, self.categorical[column]];
        }
        let index = bin_column.split_feature as usize;
        let feature = SplitFeature::from_words(form.split_features[index]);
        let cut = feature.cuts(form.cuts)[bin_column.start as usize + byte];
        let key_plane = bin_column.key_plane();
        let plane = (form.key_planes).partition_point(|&other| other < key_plane);
        let key = self.layout.index(plane, index, feature.feature);
        [key_of_cut(cut), key as u32]
    }
}
