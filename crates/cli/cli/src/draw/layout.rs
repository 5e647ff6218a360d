//! Layout of boxes: children are arranged in rows, with the number of columns that brings the box
//! closest to the target aspect ratio.

/// Width and height, in pixels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Size {
    pub(super) w: f64,
    pub(super) h: f64,
}

/// Upper left corner of each child within its parent, and the size of the whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RowLayout {
    pub(super) corners: Vec<(f64, f64)>,
    pub(super) size: Size,
}

/// Cost of a last row that is not full, as the logarithm of a deviation from the aspect ratio: as
/// much as for a picture that is four times too wide, so that eight boxes are laid out in two rows
/// of four rather than in three rows of three.
const RAGGED_COST: f64 = 1.4;

/// Lays out `children` in order in rows with spacing `gap`, so that the aspect ratio (width /
/// height) is closest to `aspect` without leaving holes.
pub(super) fn flow(children: &[Size], gap: f64, aspect: f64) -> RowLayout {
    let mut best = RowLayout::default();
    let mut best_cost = f64::INFINITY;
    for columns in 1..=children.len() {
        let flow = rows_of(children, columns, gap);
        let is_ragged = !children.len().is_multiple_of(columns);
        let shape = (flow.size.w / flow.size.h / aspect).ln().abs();
        let cost = shape + if is_ragged { RAGGED_COST } else { 0.0 };
        if cost < best_cost {
            (best, best_cost) = (flow, cost);
        }
    }
    best
}

/// Lays out `runs` of children: first each run separately, then the runs beside or below each
/// other.
pub(super) fn flow_runs(runs: &[Vec<Size>], gap: f64, aspect: f64) -> RowLayout {
    let inner: Vec<RowLayout> = runs.iter().map(|run| flow(run, gap, aspect)).collect();
    let sizes: Vec<Size> = inner.iter().map(|flow| flow.size).collect();
    let outer = flow(&sizes, gap, aspect);
    let shifted = inner
        .iter()
        .zip(&outer.corners)
        .flat_map(|(run, &(x0, y0))| run.corners.iter().map(move |&(x, y)| (x0 + x, y0 + y)));
    RowLayout {
        corners: shifted.collect(),
        size: outer.size,
    }
}

fn rows_of(children: &[Size], columns: usize, gap: f64) -> RowLayout {
    let mut flow = RowLayout::default();
    let mut y = 0.0;
    for row in children.chunks(columns) {
        let mut x = 0.0;
        let mut tallest = 0.0f64;
        for child in row {
            flow.corners.push((x, y));
            flow.size.w = flow.size.w.max(x + child.w);
            x += child.w + gap;
            tallest = tallest.max(child.h);
        }
        flow.size.h = y + tallest;
        y += tallest + gap;
    }
    flow
}

#[cfg(test)]
mod tests {
    use super::{Size, flow};

    #[test]
    fn sixteen_equal_boxes_form_a_full_grid_of_the_wanted_shape() {
        let children = [Size { w: 90.0, h: 60.0 }; 16];
        let wide = flow(&children, 10.0, 6.0);
        assert_eq!(wide.size, Size { w: 790.0, h: 130.0 });
        assert_eq!(wide.corners[8], (0.0, 70.0));
        let square = flow(&children, 10.0, 1.4);
        assert_eq!(square.size, Size { w: 390.0, h: 270.0 });
    }

    #[test]
    fn no_boxes_take_no_room() {
        assert_eq!(flow(&[], 10.0, 1.0).size, Size::default());
    }
}
