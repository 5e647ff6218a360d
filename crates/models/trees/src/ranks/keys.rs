//! The keys of a row: what the walk and the explanation of one row compare, see `ranks`.

use albacore_simd::{Simd, Special};

use super::{Asked, Column, KEY_MISSING, KEY_ZERO};
use crate::ranks::quantize::{byte_of, rank_of};
use crate::rows::Rows;

use crate::view::{EnsembleView, ZERO_MAX, flag};
use albacore_formats::Library;

/// Where the keys of a row lie: first one that is below all others, then the planes, then one for
/// each categorical column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    /// Number of asked features.
    pub(crate) asked: usize,
    /// Values in a row.
    pub(crate) features: usize,
    /// Number of planes.
    pub(crate) planes: usize,
}

impl Keys {
    /// Whether a plane has all features, and not only those that are asked: then a row is turned
    /// into keys as it lies, which is several times as fast as picking values from it.
    fn is_dense(self) -> bool {
        self.features <= 4 * self.asked
    }

    /// Keys of a plane.
    fn width(self) -> usize {
        match self.is_dense() {
            true => self.features,
            false => self.asked,
        }
    }

    /// The place of a feature's key in a plane.
    pub(crate) fn place(self, plane: usize, asked: usize, feature: usize) -> usize {
        let place = if self.is_dense() { feature } else { asked };
        1 + plane * self.width() + place
    }

    /// The place of the first categorical column.
    pub(crate) fn sets(self) -> usize {
        1 + self.planes * self.width()
    }
}

/// What keys of missing values and of zeros are in a plane; `zero` is the magnitude up to which
/// values are zeros.
fn special(zero: f32, plane: u32) -> Special {
    let has = |bits: u8| plane & u32::from(bits) != 0;
    let missing = KEY_MISSING[usize::from(has(flag::DEFAULT_LEFT))];
    let is_nan_missing = has(flag::MISSING_NAN | flag::MISSING_ZERO);
    Special {
        zero,
        // NaN counts as 0 where it is not missing.
        of_nan: if is_nan_missing { missing } else { KEY_ZERO },
        of_zero: match has(flag::MISSING_ZERO) {
            true => missing,
            false => KEY_ZERO,
        },
    }
}

/// Fills in the keys of a row, for a model that has steps.
pub(crate) fn fill_keys(
    view: &EnsembleView<'_>,
    library: Library,
    rows: Rows<'_>,
    (row, simd): (usize, Simd),
    (keys, singles): (&mut [u32], &mut Vec<f32>),
) {
    let form = &view.ranks;
    let layout = view.keys();
    let (n, width) = (view.features, layout.width());
    let row = rows.slice(row * n..(row + 1) * n);
    let values = match row {
        Rows::F32(x) if layout.is_dense() => x,
        Rows::F32(x) => {
            singles.clear();
            singles.extend(form.asked.iter().map(|words| x[words[0] as usize]));
            singles
        }
        Rows::F64(x) => {
            singles.clear();
            singles.resize(width, 0.0);
            for (place, &words) in form.asked.iter().enumerate() {
                let asked = Asked::of_words(words);
                let place = layout.place(0, place, asked.feature) - 1;
                let cuts = &form.cuts[asked.cuts..][..asked.count];
                singles[place] = match (library, x[asked.feature]) {
                    (Library::Xgboost, x) => x as f32,
                    // Before rounding, which could come to a magnitude that is flushed.
                    (Library::Lightgbm, x) if x.abs() <= ZERO_MAX => 0.0,
                    (Library::Lightgbm | Library::Sklearn, x) => single_of(x, cuts),
                };
            }
            singles
        }
    };
    let zero = match (library, row) {
        (Library::Lightgbm, Rows::F32(_)) => ZERO_MAX as f32,
        _ => 0.0,
    };
    keys[0] = 0;
    let (planes, sets) = keys.split_at_mut(layout.sets());
    let planes = planes[1..].chunks_exact_mut(width.max(1));
    for (out, &plane) in planes.zip(form.planes) {
        simd.keys(values, special(zero, plane), out);
    }
    if view.has_sets() {
        let columns = form.columns.iter().map(|&words| Column::of_words(words));
        let columns = columns.filter(|column| column.has(flag::CATEGORICAL));
        for (key, column) in sets.iter_mut().zip(columns) {
            let feature = form.asked[column.asked as usize][0] as usize;
            let x = row.prepared(library, feature);
            *key = u32::from(byte_of(view, column, x, 0));
        }
    }
}

/// The `f32` that stands for a number beside these cuts.
fn single_of(x: f64, cuts: &[f64]) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || x.is_nan() {
        return near;
    }
    let below = if f64::from(near) < x {
        near
    } else {
        near.next_down()
    };
    match rank_of(cuts, x).checked_sub(1) {
        Some(last) if cuts[last as usize] > f64::from(below) => below.next_up(),
        _ => below,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_between_two_singles_is_rounded_up_only_over_a_cut() {
        let (one, next) = (1.0_f32, 1.0_f32.next_up());
        let middle = f64::midpoint(1.0, f64::from(next));
        assert_eq!(single_of(middle, &[]), one);
        assert_eq!(single_of(middle, &[1.0]), one);
        assert_eq!(single_of(middle, &[middle]), next);
        assert_eq!(single_of(middle.next_down(), &[middle]), one);
        assert_eq!(single_of(middle.next_up(), &[0.5, middle, 2.0]), next);
        assert_eq!(single_of(-middle, &[]), -next);
        assert_eq!(single_of(-middle, &[-middle]), -one);
        assert_eq!(single_of(1e300, &[]), f32::MAX);
        assert_eq!(single_of(1e300, &[1e300]), f32::INFINITY);
        assert_eq!(single_of(-1e300, &[]), f32::NEG_INFINITY);
        assert!(single_of(f64::NAN, &[1.0]).is_nan());
    }
}
