//! Checks the lots of a model when its image is opened: after that explaining a row meets no index
//! out of range.

use crate::error::ImageError;
use crate::ranks::LEAVES_MAX;
use crate::shap::blocks::POINTS_MAX;
use crate::shap::lots::{ABREAST, Lot, LotsView, Repeat, kind, vectors};
use crate::shap::paths::NONE;
use crate::view::{EnsembleView, Target};

type Checked<T> = Result<T, ImageError>;

fn require(is_right: bool, section: &'static str, lot: usize) -> Checked<()> {
    match is_right {
        true => Ok(()),
        // Lots come from trees, eight each; the number helps to find the place.
        false => Err(ImageError::Range { section, tree: lot }),
    }
}

/// Checks the lots of a model whose other arrays have been checked.
pub(crate) fn check(view: &EnsembleView<'_>) -> Checked<()> {
    let form: &LotsView<'_> = &view.lots;
    let Some((last, lots)) = form.lots.split_last() else {
        let lengths = [
            form.trees.len(),
            form.shapes.len(),
            form.asks.len(),
            form.adds.len(),
        ];
        return require(lengths == [0; 4], "lots", 0);
    };
    let ends = [
        form.shapes.len(),
        form.numbers.len(),
        form.repeats.len(),
        form.adds.len(),
    ];
    let is_whole = starts(last) == ends
        && form.trees.len() == lots.len()
        && form.asks.len() == form.shapes.len() * ABREAST
        && lots.first().unwrap_or(last)[1..5] == [0; 4]
        && !view.ranks.leaf_nodes.is_empty()
        && view.leaf_vectors.is_empty();
    require(is_whole, "lots", lots.len())?;
    let keys = view.key_count();
    let is_key = |ask: &[u32; 2]| (ask[1] as usize) < keys;
    require(form.asks.iter().all(is_key), "lots' keys", 0)?;
    let mut seen = vec![false; view.trees()];
    for (index, pair) in form.lots.windows(2).enumerate() {
        let [lot, next] = [starts(&pair[0]), starts(&pair[1])];
        let is_ascending = lot.iter().zip(&next).all(|(a, b)| a <= b);
        require(is_ascending, "lots", index)?;
        check_trees(view, index, &mut seen)?;
        check_shapes(form, &pair[0], (lot, next), index)?;
    }
    check_adds(view)
}

/// Where a lot's places, numbers, repeats and adds begin.
fn starts(&[_, shapes, numbers, repeats, adds, _]: &Lot) -> [usize; 4] {
    [shapes, numbers, repeats, adds].map(|start| start as usize)
}

/// No tree is in two lanes, and its splits are as many as its adds.
fn check_trees(view: &EnsembleView<'_>, lot: usize, seen: &mut [bool]) -> Checked<()> {
    let form = &view.lots;
    let mut splits = 0;
    for &tree in form.trees[lot].iter().filter(|&&tree| tree != NONE) {
        let is_new = seen
            .get_mut(tree as usize)
            .is_some_and(|seen| !std::mem::replace(seen, true));
        require(is_new, "lots' trees", lot)?;
        let tree = tree as usize;
        require(view.tree(tree).target != Target::All, "lots' trees", lot)?;
        // What many rows at once are explained by has the same bound.
        let path_features = view.path_features[tree].min(view.depths[tree]);
        require(path_features as usize <= 2 * POINTS_MAX, "lots' trees", lot)?;
        splits += view.splits_of(tree).len();
    }
    let adds = form.lots[lot][4] as usize..form.lots[lot + 1][4] as usize;
    require(adds.len() == splits, "lots' adds", lot)
}

fn check_shapes(
    form: &LotsView<'_>,
    lot: &Lot,
    (start, end): ([usize; 4], [usize; 4]),
    index: usize,
) -> Checked<()> {
    let [points, .., depth] = lot.map(|word| word as usize);
    let shapes = &form.shapes[start[0]..end[0]];
    require((1..=POINTS_MAX).contains(&points), "lots' points", index)?;
    // How many children of each place above are yet to come.
    let mut open = vec![1_u8];
    let mut numbers = 0;
    for &shape in shapes {
        let Some(rest) = open.last_mut().filter(|rest| **rest > 0) else {
            return require(false, "lots' shapes", index);
        };
        *rest -= 1;
        require(shape[0] <= kind::BOTH, "lots' shapes", index)?;
        // The second child of every lane is a leaf then.
        let has_second = shape[0] != kind::FIRST || shape[2] != 0;
        require(has_second, "lots' shapes", index)?;
        numbers += vectors(shape, points) * ABREAST;
        if shape[0] != kind::TWIN {
            open.push(shape[0]);
        }
        require(open.len() <= depth, "lots' depth", index)?;
        // bound: as many as are open.
        while open.len() > 1 && open.last() == Some(&0) {
            open.pop();
        }
    }
    require(open == [0] && depth <= LEAVES_MAX, "lots' shapes", index)?;
    require(numbers == end[1] - start[1], "lots' numbers", index)?;
    let is_place = |place: usize| place < shapes.len();
    for &word in &form.repeats[start[2]..end[2]] {
        let Repeat { place, above, .. } = Repeat::of_word(word);
        require(is_place(place) && is_place(above), "lots' repeats", index)?;
    }
    Ok(())
}

/// Slots are of the lot, and features among those asked.
fn check_adds(view: &EnsembleView<'_>) -> Checked<()> {
    let form = &view.lots;
    for (index, pair) in form.lots.windows(2).enumerate() {
        let slots = (pair[1][1] - pair[0][1]) as usize * ABREAST;
        let adds = &form.adds[pair[0][4] as usize..pair[1][4] as usize];
        let is_right = |&add: &u32| {
            (add >> 16) < slots as u32 && (add & 0xffff) < view.ranks.asked.len() as u32
        };
        require(adds.iter().all(is_right), "lots' adds", index)?;
    }
    Ok(())
}
