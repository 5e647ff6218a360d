//! Laws on the shape of files: head comments, sizes, names.

use crate::tree::{Source, Violation, assert_kept, files, sources, text_of};

const FILE_LINES_MAX: usize = 600;
const LIB_LINES_MAX: usize = 120;
const MAIN_LINES_MAX: usize = 60;
const INLINE_TEST_LINES_MAX: usize = 100;
/// Lines of product code in a crate, without comments and blank lines, because documentation is no
/// reason to split a crate.
const CRATE_LINES_MAX: usize = 7_000;
/// Crates that may be larger, with their limit. The solver has one subject: the searches for one
/// deployment and for several share its levels and limits.
const LARGER_CRATES: [(&str, usize); 1] = [("solver", 10_600)];

fn own_sources() -> Vec<Source> {
    sources()
        .into_iter()
        .filter(|source| !source.is_generated)
        .collect()
}

fn product_lines(source: &Source) -> usize {
    source.is_test.iter().filter(|&&is_test| !is_test).count()
}

fn product_code_lines(source: &Source) -> usize {
    let lines = source.code.iter().zip(&source.is_test);
    lines
        .filter(|(code, is_test)| !**is_test && !code.trim().is_empty())
        .count()
}

#[test]
fn every_file_has_a_head_line() {
    let has_head = |s: &Source| s.lines.first().is_some_and(|line| line.starts_with("//!"));
    let violations = sources()
        .into_iter()
        .filter(|s| s.lines.len() > 40 && !has_head(s))
        .map(|s| {
            Violation::of(
                format!("{}:1", s.path),
                "begin the file with `//!`: what it does and why",
            )
        });
    assert_kept(
        "Every file over 40 lines begins with a `//!` head (L14).",
        violations,
    );
}

#[test]
fn files_are_short() {
    let violations = own_sources().into_iter().filter_map(|source| {
        let name = source.path.rsplit('/').next().unwrap_or_default();
        let is_root = source.path.ends_with(&format!("/src/{name}"));
        let (max, way_out) = match name {
            "lib.rs" if is_root => (
                LIB_LINES_MAX,
                "lib.rs is a table of contents: move code out",
            ),
            "main.rs" if is_root => (
                MAIN_LINES_MAX,
                "main.rs parses, builds, runs: move code out",
            ),
            _ => (FILE_LINES_MAX, "split it by what it does"),
        };
        let lines = product_lines(&source);
        let what = format!("{lines} lines without tests, at most {max}; {way_out}");
        (lines > max).then(|| Violation::of(source.path, what))
    });
    assert_kept("Files are short.", violations);
}

#[test]
fn long_inline_tests_have_a_file_of_their_own() {
    let violations = own_sources().into_iter().filter_map(|source| {
        let product = product_lines(&source);
        let tests = source.lines.len() - product;
        let what = format!(
            "{tests} lines of tests, at most {INLINE_TEST_LINES_MAX}: move them to \
                            a sibling tests.rs"
        );
        (product > 0 && tests > INLINE_TEST_LINES_MAX).then(|| Violation::of(source.path, what))
    });
    assert_kept("Inline tests are short.", violations);
}

#[test]
fn crates_are_small() {
    let mut lines = std::collections::BTreeMap::<String, usize>::new();
    for source in own_sources() {
        *lines.entry(source.krate.clone()).or_default() += product_code_lines(&source);
    }
    let violations = lines.into_iter().filter_map(|(k, n)| {
        let larger = LARGER_CRATES.iter().find(|(krate, _)| *krate == k);
        let most = larger.map_or(CRATE_LINES_MAX, |&(_, most)| most);
        let what = format!("{n} lines of code, at most {most}: split by permission or by noun");
        (n > most).then(|| Violation::of(format!("crates/{k}"), what))
    });
    assert_kept("Crates are small.", violations);
}

/// Widest line of a comment, in columns: rustfmt limits code to this width but does not wrap
/// comments.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Lines of `#` comments and of comments in Helm templates that are too wide. A line without a
/// space after its first word, such as a long URL, cannot be wrapped.
fn wide_script_comments(text: &str) -> Vec<usize> {
    let mut is_in_template_comment = false;
    let mut wide = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let start = line.trim_start();
        let opens = start.starts_with("{{/*") || start.starts_with("{{- /*");
        let is_comment = start.starts_with('#') || opens || is_in_template_comment;
        is_in_template_comment = (opens || is_in_template_comment) && !line.contains("*/");
        let words = start.trim_start_matches(['#', ' ']);
        if is_comment && line.chars().count() > COMMENT_COLUMNS_MAX && words.contains(' ') {
            wide.push(index);
        }
    }
    wide
}

/// Whether a file contains handwritten `#` comments: manifests of packages, scripts, charts,
/// configuration.
fn has_script_comments(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let kinds = [".toml", ".yaml", ".yml", ".tpl", ".sh", ".py"];
    matches!(name, "Makefile" | "run") || kinds.iter().any(|kind| name.ends_with(kind))
}

#[test]
fn comments_of_scripts_and_configuration_are_at_most_100_columns_wide() {
    let long = "word ".repeat(25);
    let sample = format!(
        "# {long}\n{{{{- /* a\n {long} */}}}}\n{long}\n# {}\n",
        "x".repeat(120)
    );
    assert_eq!(wide_script_comments(&sample), [0, 2], "the law sees them");
    let paths: Vec<String> = files("")
        .into_iter()
        .filter(|p| has_script_comments(p))
        .collect();
    for path in [
        "Makefile",
        ".ci/run",
        "Cargo.toml",
        "charts/albacore/values.yaml",
        "scripts/setup.sh",
    ] {
        assert!(
            paths.iter().any(|found| found == path),
            "the law reads {path}"
        );
    }
    let violations = paths.iter().flat_map(|path| {
        let wide = wide_script_comments(&text_of(path, "it was just listed"));
        wide.into_iter().map(move |index| {
            let place = format!("{path}:{}", index + 1);
            Violation::of(place, "a comment over 100 columns: wrap it")
        })
    });
    assert_kept("Comments are narrow.", violations);
}

/// Comment lines that are too wide. A table that does not fit has to become a list.
fn wide_comments(source: &Source) -> Vec<usize> {
    let is_wide = |line: &&str| {
        let text = line.trim_start();
        text.starts_with("//") && line.chars().count() > COMMENT_COLUMNS_MAX
    };
    let lines = source.lines.iter().map(String::as_str).enumerate();
    let wide = lines.filter(|(_, line)| is_wide(line));
    wide.map(|(index, _)| index).collect()
}

#[test]
fn comments_are_at_most_100_columns_wide() {
    let wide = format!(
        "    /// {}\n    //! | {}\n",
        "x".repeat(93),
        "x".repeat(200)
    );
    let sample = Source::parse("crates/plan/src/x.rs".to_owned(), &wide);
    assert_eq!(
        wide_comments(&sample),
        [0, 1],
        "the law sees a wide comment"
    );
    let violations = sources().into_iter().flat_map(|source| {
        let wide = wide_comments(&source).into_iter();
        wide.map(|index| Violation::at(&source, index, "a comment over 100 columns: wrap it"))
            .collect::<Vec<_>>()
    });
    assert_kept("Comments are narrow.", violations);
}

#[test]
fn names_of_files_and_folders_describe_their_content() {
    let names = [
        "util",
        "utils",
        "common",
        "helper",
        "helpers",
        "shared",
        "misc",
        "lib_utils",
    ];
    let violations = files("").into_iter().filter_map(|path| {
        let mut parts = path
            .split('/')
            .map(|part| part.split('.').next().unwrap_or(part));
        let found = parts.find(|part| names.contains(part))?.to_owned();
        Some(Violation::of(
            path,
            format!("\"{found}\" says nothing: name it after its job"),
        ))
    });
    assert_kept("Names say what a thing does.", violations);
}

#[test]
fn no_build_script_and_no_toolchain_is_hidden() {
    let violations = files("").into_iter().filter_map(|path| {
        let way_out = match path.rsplit('/').next()? {
            "build.rs" => {
                "a build runs nothing: write the file by an xtask and compare it in a test"
            }
            "rust-toolchain" | "rust-toolchain.toml" => "say rust-version in Cargo.toml instead",
            _ => return None,
        };
        Some(Violation::of(path, way_out))
    });
    assert_kept(
        "A build runs no code of ours and fetches no toolchain.",
        violations,
    );
}
