//! From the arrays of a compiled model to its rank form, once, when the model is compiled.

use std::ops::Range;

use super::keys::Keys;
use super::quantize::{rank_of, side};
use super::{
    Asked, COLUMN_CUTS, Column, LEAF_PADDING, LEAVES_MAX, RankView, Split, Step, TABLE, key_of_cut,
    rounded_up,
};
use crate::image::{Image, RANK_COUNTS};
use crate::view::flag;

/// The arrays that the form is made from, as in an image.
pub(crate) struct Source<'a> {
    pub(crate) node_starts: &'a [u32],
    pub(crate) left: &'a [u32],
    pub(crate) right: &'a [u32],
    pub(crate) feature: &'a [u32],
    pub(crate) flags: &'a [u8],
    pub(crate) value: &'a [f64],
    /// Values in a row.
    pub(crate) features: usize,
    /// Values up to this magnitude are zeros.
    pub(crate) zero: f64,
    /// Values are `f32`, one for each leaf: XGBoost's scalar leaves.
    pub(crate) is_single: bool,
    /// Values are `f64`, one for each leaf.
    pub(crate) is_double: bool,
}

/// The arrays of the form, see [`RankView`](super::RankView).
#[derive(Default)]
pub(crate) struct RankForm {
    pub(crate) asked: Vec<[u32; 4]>,
    pub(crate) cuts: Vec<f64>,
    pub(crate) tables: Vec<f32>,
    pub(crate) columns: Vec<[u32; 4]>,
    pub(crate) splits: Vec<Split>,
    pub(crate) leaf_nodes: Vec<u32>,
    pub(crate) leaf_values: Vec<f32>,
    pub(crate) leaf_doubles: Vec<f64>,
    pub(crate) steps: Vec<Step>,
    pub(crate) planes: Vec<u32>,
    pub(crate) levels: Vec<Split>,
}

impl RankForm {
    /// The form of a model; empty where the model is beyond its limits.
    pub(crate) fn build(source: &Source<'_>) -> Self {
        Self::try_build(source).unwrap_or_default()
    }

    /// The lengths of the arrays, in the order of the image.
    pub(crate) fn counts(&self) -> [u64; RANK_COUNTS] {
        [
            self.asked.len(),
            self.cuts.len(),
            self.tables.len(),
            self.columns.len(),
            self.splits.len(),
            self.leaf_nodes.len(),
            self.leaf_values.len(),
            self.leaf_doubles.len(),
            self.steps.len(),
            self.planes.len(),
            self.levels.len(),
        ]
        .map(|count| count as u64)
    }

    /// The form as kernels see it.
    pub(crate) fn view(&self) -> RankView<'_> {
        RankView {
            asked: &self.asked,
            cuts: &self.cuts,
            tables: &self.tables,
            columns: &self.columns,
            splits: &self.splits,
            leaf_nodes: &self.leaf_nodes,
            leaf_values: &self.leaf_values,
            leaf_doubles: &self.leaf_doubles,
            steps: &self.steps,
            planes: &self.planes,
            levels: &self.levels,
        }
    }

    /// Appends the arrays to an image.
    pub(crate) fn push_to(&self, image: &mut Image) {
        image.push(&self.asked);
        image.push(&self.cuts);
        image.push(&self.tables);
        image.push(&self.columns);
        image.push(&self.splits);
        image.push(&self.leaf_nodes);
        image.push(&self.leaf_values);
        image.push(&self.leaf_doubles);
        image.push(&self.steps);
        image.push(&self.planes);
        image.push(&self.levels);
    }

    fn try_build(source: &Source<'_>) -> Option<Self> {
        let is_small = |tree: &Range<usize>| tree.len() < 2 * LEAVES_MAX;
        let nodes = 0..source.flags.len();
        let has_nan = |node: usize| source.is_ordered(node) && source.value[node].is_nan();
        if nodes.into_iter().any(has_nan) {
            return None;
        }
        let mut form = Self::default();
        form.push_asked(source);
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
        if source.is_single && has_blocks {
            form.leaf_values = source.leaves().map(|leaf| leaf as f32).collect();
            form.leaf_values
                .resize(form.leaf_nodes.len() + LEAF_PADDING, 0.0);
        }
        if source.is_double {
            form.leaf_doubles = source.leaves().collect();
            let leaves = form.leaf_doubles.len();
            form.leaf_doubles.resize(leaves + LEAF_PADDING, 0.0);
        }
        if source.is_single || source.is_double {
            form.push_steps(source);
        }
        (has_blocks || !form.steps.is_empty()).then_some(form)
    }

    /// Features, their cuts and search tables.
    fn push_asked(&mut self, source: &Source<'_>) {
        let mut asks: Vec<(u32, f64)> = source.splits().map(|node| source.ask(node)).collect();
        asks.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for asks in asks.chunk_by(|a, b| a.0 == b.0) {
            let first = self.cuts.len();
            for &(_, cut) in asks {
                // A categorical split's place holder is below all numbers.
                let is_new = self.cuts[first..]
                    .last()
                    .is_none_or(|last| last.to_bits() != cut.to_bits());
                if is_new && cut.to_bits() != NO_CUT.to_bits() {
                    self.cuts.push(cut);
                }
            }
            let asked = Asked {
                feature: asks[0].0 as usize,
                cuts: first,
                count: self.cuts.len() - first,
                table: self.tables.len(),
            };
            push_table(&mut self.tables, &self.cuts[first..], &asked);
            let words = [asked.feature, asked.cuts, asked.count, asked.table];
            self.asked.push(words.map(|word| word as u32));
        }
    }

    fn push_columns(&mut self, source: &Source<'_>) {
        let columns = source.splits().map(|node| self.column_of(source, node).0);
        let mut columns: Vec<Column> = columns.collect();
        columns.sort_unstable();
        columns.dedup();
        self.columns = columns
            .into_iter()
            .map(|column| column.words(self.byte_of_missing(column)))
            .collect();
    }

    /// The byte of NaN: at most, or above, what every split says; where nothing is missing, that of
    /// 0, which NaN counts as.
    fn byte_of_missing(&self, column: Column) -> u8 {
        if column.has(flag::MISSING_NAN | flag::MISSING_ZERO) {
            return side(column.has(flag::DEFAULT_LEFT));
        }
        let Asked { cuts, count, .. } = Asked::of_words(self.asked[column.asked as usize]);
        let rank = rank_of(&self.cuts[cuts..cuts + count], 0.0);
        rank.saturating_sub(column.start).min(COLUMN_CUTS as u32) as u8
    }

    /// The column of a split and its byte there.
    fn column_of(&self, source: &Source<'_>, node: usize) -> (Column, u16) {
        let (feature, cut) = source.ask(node);
        // The feature is there: `push_asked` saw the same splits.
        let asked = self.asked.partition_point(|words| words[0] < feature);
        let flags = Column::flags_of(source.flags[node]);
        let (start, byte) = if source.is_ordered(node) {
            let Asked { cuts, count, .. } = Asked::of_words(self.asked[asked]);
            let cuts = &self.cuts[cuts..cuts + count];
            let rank = cuts.partition_point(|other| other.total_cmp(&cut).is_lt());
            (rank / COLUMN_CUTS * COLUMN_CUTS, rank % COLUMN_CUTS)
        } else {
            (source.value[node] as usize, 0)
        };
        let column = Column {
            asked: asked as u32,
            flags,
            start: start as u32,
        };
        (column, byte as u16)
    }

    fn place_of(&self, column: Column) -> u16 {
        let place = self
            .columns
            .partition_point(|&words| Column::of_words(words) < column);
        place as u16
    }

    fn push_splits(&mut self, source: &Source<'_>, tree: Range<usize>) {
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
            self.splits.push([self.place_of(column), byte, left, right]);
        }
        self.push_levels(first);
    }

    /// The splits of the last tree, which begin with `first`, in the order of [`RankView::levels`].
    fn push_levels(&mut self, first: usize) {
        let splits = &self.splits[first..];
        let is_split = |slot: u16| usize::from(slot) < splits.len();
        let mut order: Vec<u16> = splits.first().map(|_| 0).into_iter().collect();
        let mut at = 0;
        while let Some(&split) = order.get(at) {
            let [.., left, right] = splits[usize::from(split)];
            order.extend([left, right].into_iter().filter(|&slot| is_split(slot)));
            at += 1;
        }
        // A stable sort: all but the twins stay in their levels.
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
            self.levels.push([column, byte, moved(left), moved(right)]);
        }
    }

    /// The nodes for the walk, level by level.
    fn push_steps(&mut self, source: &Source<'_>) {
        let distinct = |words: &[u32; 4]| {
            let Asked { cuts, count, .. } = Asked::of_words(*words);
            let cuts = &self.cuts[cuts..cuts + count];
            cuts.is_sorted_by(|&a, &b| key_of_cut(a) < key_of_cut(b))
        };
        let columns = self.columns.iter().map(|&words| Column::of_words(words));
        let (sets, by_order): (Vec<_>, Vec<_>) =
            columns.partition(|column| column.has(flag::CATEGORICAL));
        let mut planes: Vec<u32> = by_order.into_iter().map(Column::plane).collect();
        planes.sort_unstable();
        planes.dedup();
        let keys = Keys {
            asked: self.asked.len(),
            features: source.features,
            planes: planes.len(),
        };
        let is_within = keys.sets() + sets.len() <= usize::from(u16::MAX);
        if !is_within || !self.asked.iter().all(distinct) {
            return;
        }
        self.planes = planes;
        let (mut leaves, mut order, mut words) = (0_u32, Vec::new(), Vec::new());
        for tree in source.trees() {
            // What a leaf adds, in the place of a key. Leaves are numbered in the order of the
            // nodes.
            words.clear();
            for node in tree.clone() {
                words.push(match source.is_single {
                    true => (source.value[node] as f32).to_bits(),
                    false => leaves,
                });
                leaves += u32::from(source.is_leaf(node));
            }
            order.clear();
            order.push(tree.start);
            let mut at = 0;
            while let Some(&node) = order.get(at) {
                let step = if source.is_leaf(node) {
                    [words[node - tree.start], 0]
                } else {
                    let way = order.len() - at;
                    if way > usize::from(u16::MAX) {
                        (self.steps, self.planes) = Default::default();
                        return;
                    }
                    let children = source.children(node);
                    order.extend(children.map(|child| tree.start + child));
                    let (column, byte) = self.column_of(source, node);
                    let [key, place] = self.ask(keys, &sets, column, byte);
                    // infallible: places were counted above.
                    [key - 1, place | (way as u32) << 16]
                };
                self.steps.push(step);
                at += 1;
            }
        }
    }

    /// The smallest key that goes right, and its place, for a split by its column and byte there.
    fn ask(&self, keys: Keys, sets: &[Column], column: Column, byte: u16) -> [u32; 2] {
        if column.has(flag::CATEGORICAL) {
            // infallible: `sets` has all of them.
            let number = sets.partition_point(|&other| other < column);
            return [1, (keys.sets() + number) as u32];
        }
        let asked = Asked::of_words(self.asked[column.asked as usize]);
        let cut = self.cuts[asked.cuts + column.start as usize + usize::from(byte)];
        let plane = self.planes.partition_point(|&plane| plane < column.plane());
        let place = keys.place(plane, column.asked as usize, asked.feature);
        [key_of_cut(cut), place as u32]
    }
}

/// In the place of a cut: the split has none. Sorted before all numbers.
const NO_CUT: f64 = f64::from_bits(u64::MAX);

impl Source<'_> {
    fn trees(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = self.node_starts.windows(2);
        starts.map(|pair| pair[0] as usize..pair[1] as usize)
    }

    fn is_leaf(&self, node: usize) -> bool {
        self.flags[node] & flag::LEAF != 0
    }

    fn splits(&self) -> impl Iterator<Item = usize> {
        (0..self.flags.len()).filter(|&node| !self.is_leaf(node))
    }

    /// Values of the leaves.
    fn leaves(&self) -> impl Iterator<Item = f64> {
        let leaves = (0..self.flags.len()).filter(|&node| self.is_leaf(node));
        leaves.map(|node| self.value[node])
    }

    fn is_ordered(&self, node: usize) -> bool {
        self.flags[node] & (flag::LEAF | flag::CATEGORICAL) == 0
    }

    fn children(&self, node: usize) -> [usize; 2] {
        [self.left[node] as usize, self.right[node] as usize]
    }

    /// What splits values as the cut does where small values are zeros: all of them on one side.
    fn beside_zero(&self, cut: f64) -> f64 {
        if self.zero == 0.0 || cut.is_nan() || cut > self.zero || cut < -self.zero {
            cut
        } else if cut > 0.0 {
            self.zero.next_up()
        } else {
            -self.zero
        }
    }

    /// The feature and the cut of a split: the smallest number that goes right.
    fn ask(&self, node: usize) -> (u32, f64) {
        let threshold = self.value[node];
        let cut = if !self.is_ordered(node) {
            NO_CUT
        } else if self.flags[node] & flag::INCLUSIVE == 0 {
            // Adding 0 makes one zero of the two.
            threshold + 0.0
        } else if threshold == f64::INFINITY {
            f64::NAN
        } else {
            threshold.next_up() + 0.0
        };
        (self.feature[node], self.beside_zero(cut))
    }
}

/// Appends the search table of a feature.
fn push_table(tables: &mut Vec<f32>, cuts: &[f64], asked: &Asked) {
    let shift = asked.shift();
    let cut = |index: usize| cuts.get(index).map_or(f32::NAN, |&cut| rounded_up(cut));
    tables.extend((1..=TABLE).map(|entry| cut((entry << shift) - 1)));
    if shift > 0 {
        tables.extend((0..TABLE << shift).map(cut));
    }
}
