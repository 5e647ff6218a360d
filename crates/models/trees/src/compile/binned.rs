//! Computes the binned form of a model from its node arrays, see `layout::binned`.

use std::ops::Range;

use albacore_formats::Library;

use crate::compile::key_tests::KeyTests;
use crate::layout::binned::{
    BinColumn, BinColumnWords, BinnedView, COLUMN_CUTS, ColumnSplit, LEAF_PADDING, LEAVES_MAX,
    SplitFeature, SplitFeatureWords, TABLE, WalkNode, WalkNodeWords, bin_of, direction_byte,
    key_of_cut, rounded_up,
};
use crate::layout::ensemble::{EnsembleView, flag};
use crate::layout::image::{BINNED_ARRAYS, Image};
use crate::rows::ZERO_MAX;

/// A model without its binned form.
struct SourceModel<'a> {
    view: &'a EnsembleView<'a>,
    library: Library,
}

/// Arrays of the form, see [`BinnedView`].
#[derive(Default)]
pub(crate) struct BinnedForm {
    split_features: Vec<SplitFeatureWords>,
    cuts: Vec<f64>,
    tables: Vec<f32>,
    columns: Vec<BinColumnWords>,
    splits: Vec<ColumnSplit>,
    leaf_nodes: Vec<u32>,
    leaf_values: Vec<f32>,
    leaf_f64s: Vec<f64>,
    walk_nodes: Vec<WalkNodeWords>,
    key_planes: Vec<u32>,
    level_order: Vec<ColumnSplit>,
}

impl BinnedForm {
    /// Builds the form of a model; empty if the model exceeds its limits.
    pub(crate) fn build(view: &EnsembleView<'_>, library: Library) -> Self {
        Self::try_build(&SourceModel { view, library }).unwrap_or_default()
    }

    pub(crate) fn view(&self) -> BinnedView<'_> {
        BinnedView {
            split_features: &self.split_features,
            cuts: &self.cuts,
            tables: &self.tables,
            columns: &self.columns,
            splits: &self.splits,
            leaf_nodes: &self.leaf_nodes,
            leaf_values: &self.leaf_values,
            leaf_f64s: &self.leaf_f64s,
            walk_nodes: &self.walk_nodes,
            key_planes: &self.key_planes,
            level_order: &self.level_order,
        }
    }

    /// Appends the arrays to an image; returns their lengths.
    pub(crate) fn push_to(&self, image: &mut Image) -> [u64; BINNED_ARRAYS] {
        [
            image.push(&self.split_features),
            image.push(&self.cuts),
            image.push(&self.tables),
            image.push(&self.columns),
            image.push(&self.splits),
            image.push(&self.leaf_nodes),
            image.push(&self.leaf_values),
            image.push(&self.leaf_f64s),
            image.push(&self.walk_nodes),
            image.push(&self.key_planes),
            image.push(&self.level_order),
        ]
    }

    fn try_build(source: &SourceModel<'_>) -> Option<Self> {
        let is_small = |tree: &Range<usize>| tree.len() < 2 * LEAVES_MAX;
        let nodes = 0..source.view.flags.len();
        let has_nan = |node: usize| source.is_numerical(node) && source.view.value[node].is_nan();
        if nodes.into_iter().any(has_nan) {
            return None;
        }
        let mut form = Self::default();
        form.push_split_features(source);
        form.push_columns(source);
        if form.columns.len() > usize::from(u16::MAX) {
            return None;
        }
        let has_blocks = source.trees().all(|tree| is_small(&tree));
        if has_blocks {
            for tree in source.trees() {
                form.push_splits(source, tree);
            }
        }
        if source.has_f32_leaves() && has_blocks {
            form.leaf_values = source.leaves().map(|leaf| leaf as f32).collect();
            form.leaf_values
                .resize(form.leaf_nodes.len() + LEAF_PADDING, 0.0);
        }
        if source.has_f64_leaves() {
            form.leaf_f64s = source.leaves().collect();
            let leaves = form.leaf_f64s.len();
            form.leaf_f64s.resize(leaves + LEAF_PADDING, 0.0);
        }
        if source.has_f32_leaves() || source.has_f64_leaves() {
            form.push_walk_nodes(source);
        }
        (has_blocks || !form.walk_nodes.is_empty()).then_some(form)
    }

    /// Appends split features, their cuts and search tables.
    fn push_split_features(&mut self, source: &SourceModel<'_>) {
        let splits = source.splits().map(|node| source.feature_and_cut(node));
        let mut splits: Vec<(u32, f64)> = splits.collect();
        splits.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for splits in splits.chunk_by(|a, b| a.0 == b.0) {
            let first = self.cuts.len();
            for &(_, cut) in splits {
                let is_new = self.cuts[first..]
                    .last()
                    .is_none_or(|last| last.to_bits() != cut.to_bits());
                if is_new && cut.to_bits() != NO_CUT.to_bits() {
                    self.cuts.push(cut);
                }
            }
            let feature = SplitFeature {
                feature: splits[0].0 as usize,
                first_cut: first,
                cut_count: self.cuts.len() - first,
                table: self.tables.len(),
            };
            push_table(&mut self.tables, &self.cuts[first..], &feature);
            self.split_features.push(feature.words());
        }
    }

    fn push_columns(&mut self, source: &SourceModel<'_>) {
        let columns = source.splits().map(|node| self.column_of(source, node).0);
        let mut columns: Vec<BinColumn> = columns.collect();
        columns.sort_unstable();
        columns.dedup();
        self.columns = columns
            .into_iter()
            .map(|column| column.words(self.missing_byte(column)))
            .collect();
    }

    /// Returns all cuts of a split feature.
    fn cuts_of(&self, split_feature: usize) -> &[f64] {
        SplitFeature::from_words(self.split_features[split_feature]).cuts(&self.cuts)
    }

    /// Returns the byte of NaN: that of one side; in a column without missing values the byte of 0,
    /// because NaN counts as 0 there.
    fn missing_byte(&self, column: BinColumn) -> u8 {
        if column.has(flag::MISSING_NAN | flag::MISSING_ZERO) {
            return direction_byte(column.has(flag::DEFAULT_LEFT));
        }
        let bin = bin_of(self.cuts_of(column.split_feature as usize), 0.0);
        bin.saturating_sub(column.start).min(COLUMN_CUTS as u32) as u8
    }

    /// Returns the column of a split and its byte there.
    fn column_of(&self, source: &SourceModel<'_>, node: usize) -> (BinColumn, u16) {
        let (feature, cut) = source.feature_and_cut(node);
        // infallible: `push_split_features` has processed the same splits.
        let split_feature = self
            .split_features
            .partition_point(|words| words[0] < feature);
        let (start, byte) = if source.is_numerical(node) {
            let cuts = self.cuts_of(split_feature);
            let cut = cuts.partition_point(|other| other.total_cmp(&cut).is_lt());
            (cut / COLUMN_CUTS * COLUMN_CUTS, cut % COLUMN_CUTS)
        } else {
            (source.view.value[node] as usize, 0)
        };
        let column = BinColumn {
            split_feature: split_feature as u32,
            flags: BinColumn::flags_of(source.view.flags[node]),
            start: start as u32,
        };
        (column, byte as u16)
    }

    fn index_of(&self, column: BinColumn) -> u16 {
        let index = self
            .columns
            .partition_point(|&words| BinColumn::from_words(words) < column);
        index as u16
    }

    fn push_splits(&mut self, source: &SourceModel<'_>, tree: Range<usize>) {
        let nodes = tree.len();
        let (mut split, mut leaf) = (0_u16, (nodes / 2) as u16);
        let mut slots = vec![0_u16; nodes];
        for (slot, node) in slots.iter_mut().zip(tree.clone()) {
            let next = match source.is_leaf(node) {
                true => &mut leaf,
                false => &mut split,
            };
            *slot = *next;
            *next += 1;
        }
        let first = self.splits.len();
        for node in tree.clone() {
            if source.is_leaf(node) {
                self.leaf_nodes.push((node - tree.start) as u32);
                continue;
            }
            let (column, byte) = self.column_of(source, node);
            let [left, right] = source.children(node).map(|child| slots[child]);
            self.splits.push([self.index_of(column), byte, left, right]);
        }
        self.push_level_order(first);
    }

    /// Appends the splits of the last tree, which start at `first`, to [`BinnedView::level_order`].
    fn push_level_order(&mut self, first: usize) {
        let splits = &self.splits[first..];
        let is_split = |slot: u16| usize::from(slot) < splits.len();
        let mut order: Vec<u16> = splits.first().map(|_| 0).into_iter().collect();
        let mut at = 0;
        while let Some(&split) = order.get(at) {
            let [.., left, right] = splits[usize::from(split)];
            order.extend([left, right].into_iter().filter(|&slot| is_split(slot)));
            at += 1;
        }
        // A stable sort: only splits with two leaves are moved.
        order.sort_by_key(|&split| {
            let [.., left, right] = splits[usize::from(split)];
            !is_split(left) && !is_split(right)
        });
        let mut slots = vec![0_u16; splits.len()];
        for (slot, &split) in (0..).zip(&order) {
            slots[usize::from(split)] = slot;
        }
        for split in order {
            let [column, byte, left, right] = splits[usize::from(split)];
            let moved = |slot: u16| match is_split(slot) {
                true => slots[usize::from(slot)],
                false => slot,
            };
            self.level_order
                .push([column, byte, moved(left), moved(right)]);
        }
    }

    /// Computes the key planes and the walk nodes in level order; none if the model exceeds the
    /// limits of the walk kernel.
    fn push_walk_nodes(&mut self, source: &SourceModel<'_>) {
        let columns = self
            .columns
            .iter()
            .map(|&words| BinColumn::from_words(words));
        let numerical = columns.filter(|column| !column.is_categorical());
        self.key_planes = numerical.map(BinColumn::key_plane).collect();
        self.key_planes.sort_unstable();
        self.key_planes.dedup();
        match self.walk_nodes(source) {
            Some(nodes) => self.walk_nodes = nodes,
            None => self.key_planes.clear(),
        }
    }

    fn walk_nodes(&self, source: &SourceModel<'_>) -> Option<Vec<WalkNodeWords>> {
        let key_tests = KeyTests::new(self.view(), source.view.features);
        if key_tests.key_count > usize::from(u16::MAX) || !self.have_distinct_keys() {
            return None;
        }
        let mut nodes = Vec::new();
        let mut leaves = 0;
        for tree in source.trees() {
            let leaf_words = leaf_words(source, tree.clone(), &mut leaves);
            let mut order = vec![tree.start];
            let mut at = 0;
            while let Some(&node) = order.get(at) {
                let walk_node = if source.is_leaf(node) {
                    WalkNode {
                        last_left: leaf_words[node - tree.start],
                        key: 0,
                        left_offset: 0,
                    }
                } else {
                    let left_offset = order.len() - at;
                    if left_offset > usize::from(u16::MAX) {
                        return None;
                    }
                    let children = source.children(node);
                    order.extend(children.map(|child| tree.start + child));
                    let (column, byte) = self.column_of(source, node);
                    let column = usize::from(self.index_of(column));
                    let [first_right, key] = key_tests.of_split(column, usize::from(byte));
                    WalkNode {
                        last_left: first_right - 1,
                        key: key as usize,
                        left_offset,
                    }
                };
                nodes.push(walk_node.words());
                at += 1;
            }
        }
        Some(nodes)
    }

    /// Returns whether the cuts of every feature have distinct keys.
    fn have_distinct_keys(&self) -> bool {
        let distinct = |index: usize| {
            let cuts = self.cuts_of(index);
            cuts.is_sorted_by(|&a, &b| key_of_cut(a) < key_of_cut(b))
        };
        (0..self.split_features.len()).all(distinct)
    }
}

/// Returns [`WalkNode::last_left`] for each leaf of a tree, indexed by node. Leaves are numbered in
/// node order, starting at `leaves`.
fn leaf_words(source: &SourceModel<'_>, tree: Range<usize>, leaves: &mut u32) -> Vec<u32> {
    let word = |node: usize| {
        let word = match source.has_f32_leaves() {
            true => (source.view.value[node] as f32).to_bits(),
            false => *leaves,
        };
        *leaves += u32::from(source.is_leaf(node));
        word
    };
    tree.map(word).collect()
}

/// Placeholder for the cut of a categorical split, which has none. Sorts before all numbers.
const NO_CUT: f64 = f64::from_bits(u64::MAX);

impl SourceModel<'_> {
    /// Values up to this magnitude count as zero.
    fn zero_max(&self) -> f64 {
        match self.library {
            Library::Lightgbm => ZERO_MAX,
            Library::Xgboost | Library::Sklearn => 0.0,
        }
    }

    /// Returns whether each leaf has one `f32` value.
    fn has_f32_leaves(&self) -> bool {
        self.library == Library::Xgboost && self.view.leaf_vectors.is_empty()
    }

    /// Returns whether each leaf has one `f64` value.
    fn has_f64_leaves(&self) -> bool {
        self.library != Library::Xgboost && self.view.leaf_vectors.is_empty()
    }

    fn trees(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = self.view.node_starts.windows(2);
        starts.map(|pair| pair[0] as usize..pair[1] as usize)
    }

    fn is_leaf(&self, node: usize) -> bool {
        self.view.flags[node] & flag::LEAF != 0
    }

    fn splits(&self) -> impl Iterator<Item = usize> {
        (0..self.view.flags.len()).filter(|&node| !self.is_leaf(node))
    }

    /// Returns the values of the leaves.
    fn leaves(&self) -> impl Iterator<Item = f64> {
        let leaves = (0..self.view.flags.len()).filter(|&node| self.is_leaf(node));
        leaves.map(|node| self.view.value[node])
    }

    fn is_numerical(&self, node: usize) -> bool {
        self.view.flags[node] & (flag::LEAF | flag::CATEGORICAL) == 0
    }

    fn children(&self, node: usize) -> [usize; 2] {
        [
            self.view.left[node] as usize,
            self.view.right[node] as usize,
        ]
    }

    /// Returns a cut that sends all values that count as zero to the side that `cut` sends 0 to.
    fn widen_zero_cut(&self, cut: f64) -> f64 {
        let zero_max = self.zero_max();
        if zero_max == 0.0 || cut.is_nan() || cut > zero_max || cut < -zero_max {
            cut
        } else if cut > 0.0 {
            zero_max.next_up()
        } else {
            -zero_max
        }
    }

    /// Returns feature and cut of a split; the cut is the smallest number that goes right.
    fn feature_and_cut(&self, node: usize) -> (u32, f64) {
        let threshold = self.view.value[node];
        let cut = if !self.is_numerical(node) {
            NO_CUT
        } else if self.view.flags[node] & flag::INCLUSIVE == 0 {
            // Adding 0 turns -0 into +0.
            threshold + 0.0
        } else if threshold == f64::INFINITY {
            f64::NAN
        } else {
            threshold.next_up() + 0.0
        };
        (self.view.feature[node], self.widen_zero_cut(cut))
    }
}

/// Appends the search table of a feature.
fn push_table(tables: &mut Vec<f32>, cuts: &[f64], feature: &SplitFeature) {
    let shift = feature.shift();
    let cut = |index: usize| cuts.get(index).map_or(f32::NAN, |&cut| rounded_up(cut));
    tables.extend((1..=TABLE).map(|entry| cut((entry << shift) - 1)));
    if shift > 0 {
        tables.extend((0..TABLE << shift).map(cut));
    }
}
