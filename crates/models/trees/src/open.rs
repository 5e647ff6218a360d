//! Opens a compiled model in place: borrows the arrays from the bytes and checks every index, so
//! that the engines can rely on them. Corruption is an error here and never a panic later.

mod binned;
mod bundles;

use albacore_formats::{Library, Transform};
use bytemuck::AnyBitPattern;

use crate::error::ImageError;
use crate::layout::binned::BinnedView;
use crate::layout::bundles::BundlesView;
use crate::layout::ensemble::{ALL_GROUPS, EnsembleView, LeafTarget, NONE, flag};
use crate::layout::image::{
    BINNED_ARRAYS, BUNDLE_ARRAYS, HEADER_WORDS, ImageHeader, MAGIC, TUNING_WORDS,
    checksum_of_image, library_code, property,
};
use crate::limits::{DEPTH_MAX, FEATURES_MAX, GROUPS_MAX, TREES_MAX};
use crate::transform;

/// A compiled model, opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) library: Library,
    pub(crate) transform: Transform,
    pub(crate) has_covers: bool,
    pub(crate) view: EnsembleView<'a>,
    pub(crate) tuning: [u64; TUNING_WORDS],
}

type Checked<T> = Result<T, ImageError>;

fn wrong_length<T>(found: usize, expected: usize) -> Checked<T> {
    Err(ImageError::Length { found, expected })
}

fn out_of_range<T>(section: &'static str, tree: usize) -> Checked<T> {
    Err(ImageError::Range { section, tree })
}

/// Checks an image and borrows its arrays.
pub(crate) fn open(bytes: &[u8]) -> Checked<Opened<'_>> {
    let words = words_of(bytes)?;
    let Some((head, _)) = words.split_first_chunk::<HEADER_WORDS>() else {
        return wrong_length(bytes.len(), HEADER_WORDS * 8);
    };
    if head[0] != MAGIC {
        return Err(ImageError::Header {
            found: head[0],
            expected: MAGIC,
        });
    }
    if head[1] != bytes.len() as u64 {
        return wrong_length(bytes.len(), usize::try_from(head[1]).unwrap_or(usize::MAX));
    }
    if head[2] != checksum_of_image(words) {
        return Err(ImageError::Checksum);
    }
    let header = ImageHeader::from_words(head);
    let view = borrow_arrays(bytes, &header)?;
    check_model(&view)?;
    let has_vectors = header.properties & property::VECTOR_LEAVES != 0;
    for tree in 0..view.trees() {
        check_tree(&view, tree, has_vectors)?;
    }
    let library = [Library::Xgboost, Library::Lightgbm, Library::Sklearn]
        .into_iter()
        .find(|&library| library_code(library) == header.library);
    let transform = u32::try_from(header.transform)
        .ok()
        .and_then(|code| transform::decode(code, f64::from_bits(header.parameter)));
    let (Some(library), Some(transform)) = (library, transform) else {
        return out_of_range("library or objective", 0);
    };
    if header.properties & !property::ALL != 0 {
        return out_of_range("properties", 0);
    }
    binned::check(&view, library)?;
    bundles::check(&view)?;
    let has_covers = header.properties & property::COVERS != 0;
    Ok(Opened {
        library,
        transform,
        has_covers,
        view,
        tuning: header.tuning,
    })
}

fn words_of(bytes: &[u8]) -> Checked<&[u64]> {
    use bytemuck::PodCastError;
    bytemuck::try_cast_slice(bytes).map_err(|error| match error {
        PodCastError::TargetAlignmentGreaterAndInputNotAligned => ImageError::Misaligned,
        _ => ImageError::Length {
            found: bytes.len(),
            expected: bytes.len().next_multiple_of(8),
        },
    })
}

/// Borrows consecutive arrays.
struct ArrayReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ArrayReader<'a> {
    fn take<T: AnyBitPattern>(&mut self, count: u64) -> Checked<&'a [T]> {
        let length = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(size_of::<T>()))
            .filter(|&length| length <= self.bytes.len() - self.at);
        let Some(length) = length else {
            return out_of_range("counts", 0);
        };
        let array = &self.bytes[self.at..self.at + length];
        // The total size is a multiple of 8 bytes, so the padding is in range.
        self.at = (self.at + length).next_multiple_of(8);
        bytemuck::try_cast_slice(array).map_err(|_| ImageError::Misaligned)
    }
}

fn borrow_arrays<'a>(bytes: &'a [u8], header: &ImageHeader) -> Checked<EnsembleView<'a>> {
    let &ImageHeader {
        groups,
        trees,
        nodes,
        ..
    } = header;
    let is_within = header.features >= 1
        && header.features <= FEATURES_MAX as u64
        && (1..=GROUPS_MAX as u64).contains(&groups)
        && trees <= TREES_MAX as u64
        && header.iterations < u64::MAX
        && header.sets < u64::MAX;
    if !is_within {
        return out_of_range("counts", 0);
    }
    let outputs = if header.properties & property::VECTOR_LEAVES != 0 {
        groups
    } else {
        1
    };
    let mut arrays = ArrayReader {
        bytes,
        at: HEADER_WORDS * 8,
    };
    let view = EnsembleView {
        features: header.features as usize,
        groups: groups as usize,
        is_averaged: header.properties & property::AVERAGED != 0,
        base: arrays.take(groups)?,
        expected: arrays.take(trees * outputs)?,
        value: arrays.take(nodes)?,
        share: arrays.take(nodes)?,
        earlier_share: arrays.take(nodes)?,
        leaf_vectors: arrays.take(header.leaf_vectors)?,
        iteration_starts: arrays.take(header.iterations + 1)?,
        node_starts: arrays.take(trees + 1)?,
        depths: arrays.take(trees)?,
        path_features: arrays.take(trees)?,
        tree_groups: arrays.take(trees)?,
        left: arrays.take(nodes)?,
        right: arrays.take(nodes)?,
        feature: arrays.take(nodes)?,
        label: arrays.take(nodes)?,
        earlier_edge: arrays.take(nodes)?,
        set_starts: arrays.take(header.sets + 1)?,
        set_word_indices: arrays.take(header.set_words)?,
        set_words: arrays.take(header.set_words)?,
        flags: arrays.take(nodes)?,
        binned: borrow_binned(&mut arrays, header.binned)?,
        bundles: borrow_bundles(&mut arrays, header.bundles)?,
    };
    match arrays.at == bytes.len() {
        true => Ok(view),
        false => wrong_length(bytes.len(), arrays.at),
    }
}

fn borrow_binned<'a>(
    arrays: &mut ArrayReader<'a>,
    counts: [u64; BINNED_ARRAYS],
) -> Checked<BinnedView<'a>> {
    let mut counts = counts.into_iter();
    let mut count = || counts.next().unwrap_or(0);
    Ok(BinnedView {
        split_features: arrays.take(count())?,
        cuts: arrays.take(count())?,
        tables: arrays.take(count())?,
        columns: arrays.take(count())?,
        splits: arrays.take(count())?,
        leaf_nodes: arrays.take(count())?,
        leaf_values: arrays.take(count())?,
        leaf_f64s: arrays.take(count())?,
        walk_nodes: arrays.take(count())?,
        key_planes: arrays.take(count())?,
        level_order: arrays.take(count())?,
    })
}

fn borrow_bundles<'a>(
    arrays: &mut ArrayReader<'a>,
    counts: [u64; BUNDLE_ARRAYS],
) -> Checked<BundlesView<'a>> {
    let mut counts = counts.into_iter();
    let mut count = || counts.next().unwrap_or(0);
    Ok(BundlesView {
        headers: arrays.take(count())?,
        trees: arrays.take(count())?,
        nodes: arrays.take(count())?,
        key_tests: arrays.take(count())?,
        earlier_edges: arrays.take(count())?,
        scatter: arrays.take(count())?,
        constants: arrays.take(count())?,
    })
}

/// Returns whether a list of starts covers `0..end` in ascending order.
fn covers(starts: &[u32], end: usize) -> bool {
    starts.first() == Some(&0) && starts.last() == Some(&(end as u32)) && starts.is_sorted()
}

fn check_model(view: &EnsembleView<'_>) -> Checked<()> {
    let nodes = view.flags.len();
    let has_roots = view.node_starts.windows(2).all(|pair| pair[0] < pair[1]);
    if nodes > u32::MAX as usize || !covers(view.node_starts, nodes) || !has_roots {
        return out_of_range("node_starts", 0);
    }
    if !covers(view.iteration_starts, view.trees()) {
        return out_of_range("iteration_starts", 0);
    }
    if !covers(view.set_starts, view.set_words.len()) {
        return out_of_range("set_starts", 0);
    }
    Ok(())
}

fn check_tree(view: &EnsembleView<'_>, index: usize, has_vectors: bool) -> Checked<()> {
    let group = view.tree_groups[index];
    let is_group = if has_vectors {
        group == ALL_GROUPS
    } else {
        (group as usize) < view.groups
    };
    if !is_group {
        return out_of_range("tree_groups", index);
    }
    let tree = view.tree(index);
    if tree.depth > DEPTH_MAX || tree.path_features > tree.depth {
        return out_of_range("depths", index);
    }
    let vectors = view.leaf_vectors.len() / view.groups;
    let sets = view.set_starts.len() - 1;
    for node in 0..tree.nodes() {
        let (left, right) = (tree.left[node] as usize, tree.right[node] as usize);
        if tree.is_leaf(node) {
            if tree.target == LeafTarget::All && left >= vectors {
                return out_of_range("leaf_vectors", index);
            }
            continue;
        }
        if left <= node || left >= tree.nodes() || right <= node || right >= tree.nodes() {
            return out_of_range("children", index);
        }
        if tree.feature[node] as usize >= view.features {
            return out_of_range("features", index);
        }
        let set = tree.value[node];
        let is_set = set >= 0.0 && set < sets as f64 && set.fract() == 0.0;
        if tree.flags[node] & flag::CATEGORICAL != 0 && !is_set {
            return out_of_range("sets", index);
        }
        if tree.earlier_edge[node] != NONE && tree.earlier_edge[node] as usize > node {
            return out_of_range("previous", index);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
