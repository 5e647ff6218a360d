//! Time of predicting values on the models of the documented engine figures: one thread, including
//! the transform, rows of the model's own sample repeated, outputs and scratch memory reused.
//! Figures are per call; items per second are rows per second. `open` and `parse` are the one-time
//! costs of a worker and of the front.

// A corrupt zoo stops the benchmark.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../tests/zoo/mod.rs"]
mod zoo;

use albacore_trees::{Image, Kind, Model, OutputMut, PredictScratch, Predictor, Rows};
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

const MODELS: [&str; 3] = ["main_small_d6", "main_medium_d6", "main_large_d6"];

fn file(name: &str) -> Vec<u8> {
    zoo::sample(name).models().next().expect("a model file").1
}

fn image(name: &str) -> Image {
    Image::compile(&Model::parse(&file(name)).expect("a model of the zoo"))
}

#[divan::bench(args = MODELS, consts = [1, 10, 100, 1000])]
fn value<const ROWS: usize>(bencher: Bencher<'_, '_>, name: &str) {
    let image = image(name);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let sample = zoo::sample(name);
    let x = sample.array("X").expect("rows").as_f32();
    let x: Vec<f32> = x
        .into_iter()
        .cycle()
        .take(ROWS * predictor.features())
        .collect();
    let mut out = vec![0.0; ROWS * predictor.output_width(Kind::Value)];
    let mut scratch = PredictScratch::default();
    bencher.counter(ItemsCount::new(ROWS)).bench_local(|| {
        predictor
            .predict(
                Kind::Value,
                Rows::F32(black_box(&x)),
                OutputMut::F32(black_box(&mut out)),
                &mut scratch,
            )
            .expect("supported kind");
    });
}

#[divan::bench(args = MODELS)]
fn parse(bencher: Bencher<'_, '_>, name: &str) {
    let bytes = file(name);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| Model::parse(black_box(&bytes)).expect("a model of the zoo"));
}

#[divan::bench(args = MODELS)]
fn compile(bencher: Bencher<'_, '_>, name: &str) {
    let model = Model::parse(&file(name)).expect("a model of the zoo");
    bencher.bench_local(|| Image::compile(black_box(&model)));
}

#[divan::bench(args = MODELS)]
fn open(bencher: Bencher<'_, '_>, name: &str) {
    let image = image(name);
    bencher
        .counter(BytesCount::new(image.bytes().len()))
        .bench_local(|| {
            Predictor::open(black_box(image.bytes()))
                .expect("a fresh image")
                .trees()
        });
}
