//! Divided trees give the bits of a single thread for every division; partial outputs that do not
//! match are rejected.

use proptest::prelude::*;

use super::*;
use crate::kernel::Kernel;
use crate::kernel::tests::{ModelShape, RandomStream, model, predict_bits, rows};
use crate::{Image, Library};

/// Returns the bits of an output whose work units are divided at random and computed in any order.
fn divided(
    predictor: &Predictor<'_>,
    kind: Kind,
    rows: Rows<'_>,
    numbers: &mut RandomStream,
) -> Option<Vec<u64>> {
    let count = predictor.count_rows(rows).expect("whole rows");
    let units = predictor.work_units(kind, count);
    if units == 0 {
        return None;
    }
    let mut cuts: Vec<usize> = (0..numbers.below(7))
        .map(|_| numbers.below(units + 1))
        .chain([0, units])
        .collect();
    cuts.sort_unstable();
    let mut partials: Vec<(Range<usize>, PartialOutput)> = cuts
        .windows(2)
        .map(|pair| (pair[0]..pair[1], PartialOutput::default()))
        .collect();
    let mut order: Vec<usize> = (0..partials.len()).collect();
    order.sort_by_key(|_| numbers.below(1000));
    let mut scratch = PredictScratch::default();
    for place in order {
        let (units, partial) = &mut partials[place];
        predictor
            .predict_partial(kind, rows, units.clone(), partial, &mut scratch)
            .expect("units of the call");
    }
    let mut sums = Accumulator::default();
    predictor
        .start_sums(kind, count, &mut sums)
        .expect("divisible");
    for (_, partial) in &partials {
        predictor.accumulate(&mut sums, partial).expect("in order");
    }
    let length = count * predictor.output_width(kind);
    let (mut f32s, mut f64s, mut i32s) = (vec![0.0; length], vec![0.0; length], vec![0; length]);
    let element = predictor.output_element(kind);
    let out = match element {
        ElementType::F32 => OutputMut::F32(&mut f32s),
        ElementType::F64 => OutputMut::F64(&mut f64s),
        ElementType::I32 => OutputMut::I32(&mut i32s),
    };
    predictor.finish_sums(&mut sums, out).expect("an output");
    Some(match element {
        ElementType::F32 => f32s.iter().map(|x| u64::from(x.to_bits())).collect(),
        ElementType::F64 => f64s.iter().map(|x| x.to_bits()).collect(),
        ElementType::I32 => i32s.iter().map(|&x| x as u64).collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn trees_divided_among_threads_are_bit_identical_to_one_thread(
        library in 0..3_usize,
        features in 1..40_usize,
        groups in 1..4_usize,
        trees in 1..60_usize,
        leaves in 1..60_usize,
        categorical in prop_oneof![Just(0), Just(30)],
        has_vectors in prop::bool::weighted(0.1),
        count in prop_oneof![1..6_usize, 1..65_usize],
        seed in any::<u64>(),
    ) {
        let library = [Library::Xgboost, Library::Lightgbm, Library::Sklearn][library];
        let has_vectors = has_vectors && library == Library::Xgboost;
        let shape = ModelShape { library, features, groups, trees, leaves, categorical, has_vectors };
        let mut numbers = RandomStream(seed);
        let model = model(shape, &mut numbers);
        let image = Image::compile(&model);
        let fresh = Predictor::open(image.bytes()).expect("a fresh image");
        let doubles = rows(&model, count, &mut numbers);
        let singles: Vec<f32> = doubles.iter().map(|&x| x as f32).collect();
        let kernels = Kernel::ALL.iter().filter_map(|&kernel| fresh.with_kernel(kernel));
        for predictor in [fresh].into_iter().chain(kernels) {
            for kind in Kind::ALL {
                for rows in [Rows::F32(&singles), Rows::F64(&doubles)] {
                    if let Some(got) = divided(&predictor, kind, rows, &mut numbers) {
                        prop_assert_eq!(got, predict_bits(&predictor, kind, rows), "{} {:?}", kind, shape);
                    }
                }
            }
        }
    }
}

fn small() -> Image {
    let shape = ModelShape {
        library: Library::Xgboost,
        features: 3,
        groups: 1,
        trees: 20,
        leaves: 8,
        categorical: 0,
        has_vectors: false,
    };
    Image::compile(&model(shape, &mut RandomStream(1)))
}

#[test]
fn only_margins_leaves_and_contributions_of_few_rows_can_be_divided() {
    let image = small();
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let units = |kind, rows| predictor.work_units(kind, rows);
    assert_eq!([units(Kind::Value, 1), units(Kind::Leaf, 64)], [3, 3]);
    assert_eq!([units(Kind::Value, 0), units(Kind::Value, 65)], [0, 0]);
    assert!(units(Kind::Contribs, FEW_ROWS) > 0);
    assert_eq!(units(Kind::Contribs, FEW_ROWS + 1), 0);
    assert_eq!(units(Kind::Interactions, 1), 0);
    let refused = predictor.start_sums(Kind::Interactions, 1, &mut Accumulator::default());
    let text = refused.expect_err("a call of one piece").to_string();
    let due = "invalid partial output: the call has none, because it cannot be divided by trees";
    assert_eq!(text, due);
}

#[test]
fn inconsistent_partial_outputs_are_rejected() {
    let image = small();
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let (row, mut scratch) = ([0.5_f32; 3], PredictScratch::default());
    let mut partial_of = |kind, units| {
        let mut partial = PartialOutput::default();
        let computed =
            predictor.predict_partial(kind, Rows::F32(&row), units, &mut partial, &mut scratch);
        computed.map(|()| partial)
    };
    let first = partial_of(Kind::Margin, 0..1).expect("a unit");
    let second = partial_of(Kind::Margin, 1..3).expect("two units");
    let other = partial_of(Kind::Leaf, 0..1).expect("a unit");
    assert!(partial_of(Kind::Margin, 1..4).is_err());
    let mut sums = Accumulator::default();
    assert!(
        predictor.accumulate(&mut sums, &first).is_err(),
        "not started"
    );
    predictor
        .start_sums(Kind::Margin, 1, &mut sums)
        .expect("a call");
    assert!(
        predictor.accumulate(&mut sums, &second).is_err(),
        "out of order"
    );
    assert!(
        predictor.accumulate(&mut sums, &other).is_err(),
        "of leaves"
    );
    predictor.accumulate(&mut sums, &first).expect("the first");
    let mut out = [0.0];
    let finished = predictor.finish_sums(&mut sums, OutputMut::F32(&mut out));
    let reason = "a partial output is missing";
    assert_eq!(finished, Err(PredictError::Divided { reason }));
}
