//! Prediction of one row through the public API does not allocate after the first call. The only
//! test of its program, so that every allocation is the engine's.

// A corrupt zoo stops the test.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use std::alloc::System;

use albacore_trees::{ElementType, Image, Kind, Model, OutputMut, PredictScratch, Predictor, Rows};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn one_row_is_predicted_and_explained_without_allocating() {
    for name in [
        "main_small_d6",
        "main_medium_d6",
        "main_large_d6",
        "lgb_binary",
    ] {
        let sample = zoo::sample(name);
        let (_, bytes) = sample.models().next().expect("a model file");
        let image = Image::compile(&Model::parse(&bytes).expect("a model of the zoo"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        let mut scratch = PredictScratch::default();
        for kind in [Kind::Value, Kind::Margin, Kind::Contribs, Kind::Leaf] {
            let row = vec![0.5_f32; predictor.features()];
            let width = predictor.output_width(kind);
            let (mut f32s, mut f64s, mut i32s) =
                (vec![0.0; width], vec![0.0; width], vec![0; width]);
            let mut call = || {
                let out = match predictor.output_element(kind) {
                    ElementType::F32 => OutputMut::F32(&mut f32s),
                    ElementType::F64 => OutputMut::F64(&mut f64s),
                    ElementType::I32 => OutputMut::I32(&mut i32s),
                };
                predictor
                    .predict(kind, Rows::F32(&row), out, &mut scratch)
                    .expect("a supported kind");
            };
            call();
            let region = Region::new(ALLOCATOR);
            call();
            let change = region.change();
            assert_eq!(change.allocations, 0, "{name} {kind}: {change:?}");
            assert_eq!(change.reallocations, 0, "{name} {kind}: {change:?}");
        }
    }
}
