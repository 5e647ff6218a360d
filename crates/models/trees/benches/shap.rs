//! Time of contributions and interactions on the models of the documented engine figures: one
//! thread, rows of the model's own sample, outputs and scratch memory reused. Figures are per call;
//! items per second are rows per second.

// A corrupt zoo stops the benchmark.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../tests/zoo/mod.rs"]
mod zoo;

use albacore_trees::{Image, Kind, Model, OutputMut, PredictScratch, Predictor, Rows};
use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

const MODELS: [&str; 3] = ["main_small_d6", "main_medium_d6", "main_large_d6"];

/// Returns the compiled model and the requested number of rows, repeating those of the sample.
fn prepare(name: &str, rows: usize) -> (Image, Vec<f32>) {
    let sample = zoo::sample(name);
    let (_, bytes) = sample.models().next().expect("a model file");
    let image = Image::compile(&Model::parse(&bytes).expect("a model of the zoo"));
    let x = sample.array("X").expect("rows");
    (
        image,
        x.as_f32()
            .into_iter()
            .cycle()
            .take(rows * x.width())
            .collect(),
    )
}

fn explain(bencher: Bencher<'_, '_>, name: &str, kind: Kind, rows: usize) {
    let (image, x) = prepare(name, rows);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let mut out = vec![0.0; rows * predictor.output_width(kind)];
    let mut scratch = PredictScratch::default();
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        predictor
            .predict(kind, Rows::F32(&x), OutputMut::F32(&mut out), &mut scratch)
            .expect("supported kind");
    });
}

#[divan::bench(args = MODELS, consts = [1, 100])]
fn contribs<const ROWS: usize>(bencher: Bencher<'_, '_>, name: &str) {
    explain(bencher, name, Kind::Contribs, ROWS);
}

#[divan::bench(args = MODELS)]
fn interactions(bencher: Bencher<'_, '_>, name: &str) {
    explain(bencher, name, Kind::Interactions, 1);
}
