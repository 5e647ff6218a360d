//! Gathered rows have bitwise the same results as each row alone.

use std::sync::Arc;

use albacore_os::{Extent, ReadMapping, SharedMemory};
use albacore_trees::{Image, Model};

use super::*;
use crate::command::RevisionId;
use crate::front_memory::View;
use crate::models::ImageTable;
use crate::thread_context::ThreadContext;

const REVISION: RevisionId = RevisionId(1);

/// Bytes between the rows or results of two requests.
const GAP: usize = 8192;

fn segment(rows: usize, kinds: KindSet) -> Segment {
    Segment {
        revision: REVISION,
        kinds: kinds.bits(),
        is_double: false,
        first_row: 0,
        rows,
        request_rows: rows,
        input_offset: 0,
        results_offset: 0,
    }
}

fn all_parts(segments: &[Segment]) -> Vec<SegmentRowRange> {
    parts_of(segments, 0..usize::MAX).collect()
}

#[test]
fn parts_cover_a_range_of_all_rows() {
    let segments = [3, 1, 4].map(|rows| segment(rows, KindSet::only(Kind::Value)));
    let parts = |range| {
        let parts = parts_of(&segments, range);
        parts
            .map(|part| (part.segment, part.from..part.to))
            .collect::<Vec<_>>()
    };
    assert_eq!(parts(0..usize::MAX), [(0, 0..3), (1, 0..1), (2, 0..4)]);
    assert_eq!(parts(2..6), [(0, 2..3), (1, 0..1), (2, 0..2)]);
    assert_eq!(parts(4..5), [(2, 0..1)]);
    assert_eq!(parts(8..9), []);
}

#[test]
fn only_rows_for_the_same_outputs_of_the_same_model_are_gathered() {
    let value = KindSet::only(Kind::Value);
    let group = |segments: &[Segment]| first_group(segments, &all_parts(segments), 100);
    let one = segment(1, value);
    let large = segment(GATHERED_ROWS_MAX, value);
    let contribs = segment(1, KindSet::only(Kind::Contribs));
    let interactions = segment(1, KindSet::only(Kind::Interactions));
    let double = Segment {
        is_double: true,
        ..one
    };
    let other = Segment {
        revision: RevisionId(2),
        ..one
    };
    assert_eq!(group(&[one, one, one]), 3);
    assert_eq!(group(&[one, one, contribs]), 2);
    assert_eq!(group(&[one, double]), 1);
    assert_eq!(group(&[one, other]), 1);
    assert_eq!(group(&[one, large]), 1);
    assert_eq!(group(&[large, one]), 1);
    assert_eq!(group(&[interactions, interactions]), 1);
    let many = vec![one; GATHERED_BYTES_MAX / 100 + 1];
    assert_eq!(group(&many), GATHERED_BYTES_MAX / 100);
    assert_eq!(
        first_group(&many, &all_parts(&many), GATHERED_BYTES_MAX + 1),
        1
    );
}

/// Requests of these sizes, with gaps between their rows and results.
fn requests(sizes: &[usize], kinds: KindSet) -> Vec<Segment> {
    let places = sizes.iter().enumerate();
    let requests = places.map(|(index, &rows)| Segment {
        input_offset: index * GAP,
        results_offset: index * GAP,
        ..segment(rows, kinds)
    });
    requests.collect()
}

fn table(file: &str, kinds: KindSet) -> ImageTable {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/models/");
    let bytes = std::fs::read(format!("{folder}{file}")).unwrap();
    let image = Image::compile(&Model::parse(&bytes).unwrap());
    let memory = SharedMemory::create_sealed("model", image.bytes()).unwrap();
    ImageTable::of(REVISION, memory, kinds).unwrap()
}

/// Rows of all requests; some values are missing.
fn rows(bytes: usize) -> Arc<ReadMapping> {
    let value = |index: usize| match index % 11 {
        0 => f32::NAN,
        _ => ((index * 7919) % 1000) as f32 / 250.0 - 2.0,
    };
    let rows: Vec<f32> = (0..bytes / 4).map(value).collect();
    let memory = SharedMemory::create_sealed("rows", bytemuck::cast_slice(&rows)).unwrap();
    Arc::new(memory.map_read().unwrap())
}

fn context(rows: &Arc<ReadMapping>, results: Extent) -> ThreadContext {
    let rows = Arc::clone(rows);
    ThreadContext::new(View { rows, results })
}

fn results(bytes: usize) -> (SharedMemory, Extent) {
    let memory = SharedMemory::create("results", bytes).unwrap();
    let extent = memory.map_extent().unwrap();
    (memory, extent)
}

#[test]
fn gathered_rows_give_bit_identical_results() {
    let kinds = [
        KindSet::only(Kind::Value),
        KindSet::only(Kind::Leaf),
        KindSet::only(Kind::Contribs),
        KindSet::only(Kind::Contribs).with(Kind::Margin),
    ];
    let sizes = [1, 1, 3, 1, 7, 1, 20, 1, 1, 2];
    for file in ["main_small_d6.ubj", "lgb_binary.txt", "lgb_multiclass.txt"] {
        for kinds in kinds {
            let models = table(file, kinds);
            let segments = requests(&sizes, kinds);
            let rows = rows(GAP * sizes.len());
            let (together_memory, together) = results(16 * GAP * sizes.len());
            let (alone_memory, alone) = results(16 * GAP * sizes.len());
            let segments: Vec<Segment> = segments
                .into_iter()
                .map(|it| Segment {
                    results_offset: it.results_offset * 16,
                    ..it
                })
                .collect();
            let parts = all_parts(&segments);
            let mut gathering = context(&rows, together);
            gathering
                .compute_gathered(&models, &segments, &parts)
                .unwrap();
            let mut single = context(&rows, alone);
            for part in parts {
                let segment = &segments[part.segment];
                single.compute(&models, segment, part).unwrap();
            }
            let [together, alone] = [together_memory, alone_memory]
                .map(|memory| memory.map_read().unwrap().as_slice().to_vec());
            assert!(alone.iter().any(|&byte| byte != 0));
            assert!(together == alone, "{file} {kinds:?}");
        }
    }
}

#[test]
fn an_invalid_request_is_not_gathered_with_others() {
    let kinds = KindSet::only(Kind::Value);
    let models = table("main_small_d6.ubj", kinds);
    let mut segments = requests(&[1, 1, 1], kinds);
    segments[1].input_offset = usize::MAX - 7;
    let rows = rows(3 * GAP);
    let (_memory, extent) = results(3 * GAP);
    let mut context = context(&rows, extent);
    let parts = all_parts(&segments);
    assert!(
        context
            .compute_gathered(&models, &segments, &parts)
            .is_err()
    );
    let failed = parts.iter().filter(|part| {
        let segment = &segments[part.segment];
        context.compute(&models, segment, **part).is_err()
    });
    assert_eq!(failed.map(|part| part.segment).collect::<Vec<_>>(), [1]);
}

#[test]
fn segments_outside_of_the_range_have_no_part() {
    let segments = requests(&[3, 2, 4], KindSet::only(Kind::Value));
    let parts = |range| {
        let parts = parts_of(&segments, range);
        parts
            .map(|part| (part.segment, part.from, part.to))
            .collect::<Vec<_>>()
    };
    assert_eq!(parts(0..2), [(0, 0, 2)]);
    assert_eq!(parts(4..6), [(1, 1, 2), (2, 0, 1)]);
    assert_eq!(parts(9..12), []);
}
