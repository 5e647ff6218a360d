//! Model files: reading arbitrary bytes results in an error or in a model that compiles, opens and
//! predicts for a few rows of every kind, without panic, in bounded time and memory (libFuzzer's
//! `-timeout` and `-rss_limit_mb`).
#![no_main]

use albacore_trees::{
    Accumulator, ElementType, Image, Kind, Model, OutputMut, PartialOutput, PredictScratch,
    Predictor, Rows,
};
use libfuzzer_sys::fuzz_target;

/// Maximum number of features: wider rows, which a small file can declare, would only measure the
/// allocator.
const FEATURES_MAX: usize = 4096;
/// Maximum number of values of an output.
const OUTPUT_MAX: usize = 1 << 18;

const VALUES: [f64; 9] = [
    0.0,
    1.0,
    -0.0,
    33.0,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e30,
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = Model::parse(bytes) else {
        return;
    };
    if model.parts().features > FEATURES_MAX {
        return;
    }
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes()).expect("what compiles opens");
    let count = 3;
    let rows: Vec<f64> = VALUES
        .iter()
        .cycle()
        .take(count * predictor.features())
        .copied()
        .collect();
    let mut scratch = PredictScratch::default();
    for kind in Kind::ALL {
        let length = count * predictor.output_width(kind);
        if length > OUTPUT_MAX {
            continue;
        }
        let (mut f32s, mut f64s, mut i32s) =
            (vec![0.0; length], vec![0.0; length], vec![0; length]);
        divide(&predictor, kind, &rows, count);
        let out = match predictor.output_element(kind) {
            ElementType::F32 => OutputMut::F32(&mut f32s),
            ElementType::F64 => OutputMut::F64(&mut f64s),
            ElementType::I32 => OutputMut::I32(&mut i32s),
        };
        // A model without covers has no contributions: an error, not a panic.
        let _ = predictor.predict(kind, Rows::F64(&rows), out, &mut scratch);
    }
});

/// Splits the work units in two parts: the partial outputs must be consistent for every model.
fn divide(predictor: &Predictor<'_>, kind: Kind, rows: &[f64], count: usize) {
    let units = predictor.work_units(kind, count);
    if units == 0 {
        return;
    }
    let (mut partial, mut sums) = (PartialOutput::default(), Accumulator::default());
    let mut scratch = PredictScratch::default();
    predictor
        .start_sums(kind, count, &mut sums)
        .expect("a call that can be divided");
    for units in [0..units / 2, units / 2..units] {
        predictor
            .predict_partial(kind, Rows::F64(rows), units, &mut partial, &mut scratch)
            .expect("units of the call");
        predictor.accumulate(&mut sums, &partial).expect("in order");
    }
}
