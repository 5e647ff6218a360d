//! Memory use of parsing a model, as counted by the kernel: a small multiple of the file size, and
//! none for counts that a file only declares. The only test of its program, so that the process's
//! counters cover nothing else.

// A machine without /proc stops the test.
#![allow(clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use albacore_trees::{Image, Model};

/// Returns a byte counter that the kernel maintains for this process.
fn counted(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a line of status");
    let kib: usize = line
        .trim_matches([':', ' ', '\t', 'k', 'B'])
        .parse()
        .expect("a number");
    kib * 1024
}

/// Returns the peak increase of resident memory during `work`, and its result.
fn added<T>(work: impl FnOnce() -> T) -> (usize, T) {
    // 5 resets the peak resident set size.
    std::fs::write("/proc/self/clear_refs", "5").expect("an own process");
    let before = counted("VmRSS");
    let result = work();
    (counted("VmHWM").saturating_sub(before), result)
}

/// A LightGBM model of many small trees.
fn text(trees: usize) -> Vec<u8> {
    // Allocated at once: memory that repeated growth returns to the allocator would be reused by
    // parsing and not be counted.
    let mut text = String::with_capacity(trees * 200 + 200);
    text += "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\n";
    for tree in 0..trees {
        write!(
            text,
            "Tree={tree}\nnum_leaves=3\nsplit_feature=0 1\nthreshold=0.5 0\ndecision_type=10 10\n\
             left_child=1 -1\nright_child=-3 -2\nleaf_value=10 20 30\nleaf_count=2 4 4\n\
             internal_count=10 6\n\n"
        )
        .expect("memory");
    }
    text += "end of trees\n";
    text.into_bytes()
}

/// An XGBoost model of one large tree, in as few bytes of JSON as possible.
fn json(splits: usize) -> Vec<u8> {
    let nodes = 2 * splits + 1;
    let list = |f: &dyn Fn(usize) -> String| (0..nodes).map(f).collect::<Vec<_>>().join(",");
    let child = |node: usize, side: usize| match node < splits {
        true => (2 * node + side).to_string(),
        false => "-1".to_owned(),
    };
    let (left, right) = (list(&|node| child(node, 1)), list(&|node| child(node, 2)));
    let zeros = list(&|_| "0".to_owned());
    format!(
        "{{\"learner\":{{\"gradient_booster\":{{\"name\":\"gbtree\",\"model\":{{\
         \"tree_info\":[0],\"trees\":[{{\"tree_param\":{{}},\"left_children\":[{left}],\
         \"right_children\":[{right}],\"split_indices\":[{zeros}],\"split_conditions\":[{zeros}],\
         \"default_left\":[{zeros}],\"sum_hessian\":[{zeros}]}}]}}}},\"learner_model_param\":\
         {{\"base_score\":\"0\",\"num_feature\":\"1\"}},\
         \"objective\":{{\"name\":\"reg:squarederror\"}}}}}}"
    )
    .into_bytes()
}

/// A chain of splits in LightGBM's and XGBoost's formats, far deeper than the bound.
fn deep(levels: usize) -> [Vec<u8>; 2] {
    let (mut left, mut right) = (String::new(), String::new());
    for split in 0..levels {
        let next = if split + 1 == levels {
            -1 - levels as i64
        } else {
            split as i64 + 1
        };
        write!(left, "{} ", -1 - split as i64).expect("memory");
        write!(right, "{next} ").expect("memory");
    }
    let constant = |value: &str, count: usize| format!("{value} ").repeat(count);
    let text = format!(
        "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\nTree=0\nnum_leaves={}\n\
         split_feature={zeros}\nthreshold={zeros}\ndecision_type={zeros}\nleft_child={left}\n\
         right_child={right}\nleaf_value={zeros}0\nend of trees\n",
        levels + 1,
        zeros = constant("0", levels),
    );
    let (mut left, mut right) = (String::from("1"), String::from("2"));
    for node in 1..2 * levels {
        let child = |side: usize| {
            if node % 2 == 0 {
                (node + side).to_string()
            } else {
                "-1".to_owned()
            }
        };
        write!(left, ",{}", child(1)).expect("memory");
        write!(right, ",{}", child(2)).expect("memory");
    }
    let zeros = ",0".repeat(2 * levels);
    let json = format!(
        "{{\"learner\":{{\"gradient_booster\":{{\"model\":{{\"trees\":[{{\"tree_param\":{{}},\
         \"default_left\":[0{zeros}],\"left_children\":[{left},-1],\"right_children\":[{right},-1],\
         \"split_indices\":[0{zeros}],\"split_conditions\":[0{zeros}]}}]}}}}}}}}"
    );
    [text.into_bytes(), json.into_bytes()]
}

/// Allowed memory growth in addition to the multiple of the file size, because allocators grow in
/// large steps.
const SLACK: usize = 16 << 20;

#[test]
fn reading_and_compiling_take_a_small_multiple_of_the_file() {
    let tree_info = &b"{U\x07learner{U\x10gradient_booster{U\x05model{U\x09tree_info"[..];
    for field in [tree_info, b"{U\x07version"] {
        for count in [
            &b"[$l#L\0\0\0\xff\xff\xff\xff\xff"[..],
            b"[#L\0\0\0\xff\xff\xff\xff\xff",
        ] {
            let before = counted("VmPeak");
            Model::parse(&[field, count].concat()).expect_err("a cut file");
            assert!(counted("VmPeak") - before < SLACK);
        }
    }
    for file in deep(1_000_000) {
        let (parsed, error) = added(|| Model::parse(&file).expect_err("a path of a million steps"));
        assert!(
            error.to_string().contains("a path of 4097 steps to node"),
            "{error}"
        );
        println!("{} bytes, refused with {parsed} more", file.len());
        assert!(parsed < 64 << 20, "{parsed}");
    }
    measure("LightGBM", &text(50_000));
    measure("XGBoost", &json(1 << 18));
}

/// Parses and compiles a file and checks the memory use.
fn measure(name: &str, file: &[u8]) {
    let (parsed, model) = added(|| Model::parse(file).expect("a model"));
    let (compiled, image) = added(|| Image::compile(&model));
    let (bytes, length) = (image.bytes().len(), file.len());
    println!("{name}: {length} bytes, image {bytes}, parse {parsed}, compile {compiled}");
    assert!(
        parsed < 10 * length + SLACK,
        "{name}: {parsed} to parse {length}"
    );
    assert!(
        compiled < 10 * length + SLACK,
        "{name}: {compiled} to compile {length}"
    );
    assert!(bytes < 10 * length, "{name}: {bytes} of {length}");
}
