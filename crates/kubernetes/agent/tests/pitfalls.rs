//! Checks that every file and test named in PITFALLS.md exists, and that no pitfall is missing.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use std::path::Path;

#[test]
fn every_pitfall_names_code_and_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let table = include_str!("../PITFALLS.md");
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| P"))
        .collect();
    assert_eq!(rows.len(), 33);
    for (index, row) in rows.iter().enumerate() {
        let name = format!("P{}", index + 1);
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!((cells.len(), cells[0]), (5, name.as_str()), "{row}");
        let paths = |cell: &str| -> Vec<String> {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let (code, tests) = (paths(cells[3]), paths(cells[4]));
        assert!(
            !code.is_empty() && !tests.is_empty(),
            "{name} names no code or no test"
        );
        for path in code {
            assert!(root.join(&path).is_file(), "{name}: {path} is no file");
        }
        for test in tests {
            let (path, function) = test
                .split_once("::")
                .unwrap_or_else(|| panic!("{name}: {test}"));
            let text = std::fs::read_to_string(root.join(path));
            let text = text.unwrap_or_else(|e| panic!("{name}: {path}: {e}"));
            let has = text.contains(&format!("fn {function}("));
            assert!(has, "{name}: {path} has no test {function}");
        }
    }
}
