//! SECURITY.md was reviewed recently and its tests exist; ARCHITECTURE.md mentions every crate; the
//! required documents exist.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::tree::{Violation, assert_kept, crate_of, crate_paths, files, root, sources, text_of};

const REVIEW_DAYS_MAX: i64 = 180;

/// Days since 1970-01-01 of a Gregorian date `YYYY-MM-DD`.
fn days_of(date: &str) -> Option<i64> {
    let mut parts = date
        .trim()
        .splitn(3, '-')
        .map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    // Years start in March, so that the leap day is the last day of the year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    is_date.then_some(year * 365 + leap_days + (month * 153 + 2) / 5 + day - 719_469)
}

#[test]
fn days_are_counted_as_by_the_calendar() {
    for (date, days) in [
        ("1970-01-01", 0),
        ("2000-03-01", 11_017),
        ("2024-02-29", 19_782),
        ("2026-11-21", 20_778),
    ] {
        assert_eq!(days_of(date), Some(days), "{date}");
    }
    assert_eq!(days_of("2026-13-01"), None);
}

#[test]
fn the_security_review_is_recent() {
    let text = text_of(
        "SECURITY.md",
        "it says what is protected, and by which test",
    );
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Reviewed: "));
    let reviewed = line
        .and_then(days_of)
        .expect("SECURITY.md has a line `Reviewed: YYYY-MM-DD`");
    let today = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is after 1970");
    let age = (today.as_secs() / 86_400) as i64 - reviewed;
    assert!(
        (-1..=REVIEW_DAYS_MAX).contains(&age),
        "SECURITY.md was reviewed {age} days ago, at most {REVIEW_DAYS_MAX}: compare it with the \
         code, correct it, and write today's date"
    );
}

/// Names of all tests: functions in Rust, and in the Python and shell tests below `tests/`.
fn test_names() -> Vec<String> {
    let mut names = Vec::new();
    for source in sources() {
        for line in &source.code {
            let is_test_name = line
                .trim_start()
                .strip_prefix("fn ")
                .or(line.trim_start().strip_prefix("async fn "));
            names.extend(
                is_test_name
                    .and_then(|rest| rest.split(['(', '<']).next())
                    .map(str::to_owned),
            );
        }
    }
    for path in files("tests")
        .into_iter()
        .filter(|path| path.ends_with(".py"))
    {
        let text = text_of(&path, "it was just listed");
        let functions = text
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("def "));
        names.extend(
            functions
                .filter_map(|rest| rest.split('(').next())
                .map(str::to_owned),
        );
    }
    names
}

/// The parts of `line` in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_claim_of_security_names_an_existing_test() {
    let text = text_of(
        "SECURITY.md",
        "it says what is protected, and by which test",
    );
    let names = test_names();
    let mut violations = Vec::new();
    let mut promises = 0;
    let lines = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != "## Promises")
        .skip(1);
    for (index, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let is_row = cells.len() == 4 && cells[1] != "Promise" && !cells[1].starts_with("---");
        if !is_row {
            continue;
        }
        promises += 1;
        let place = format!("SECURITY.md:{}", index + 1);
        if quoted(cells[2]).next().is_none() {
            violations.push(Violation::of(
                &place,
                "name the test that holds it, in backticks",
            ));
        }
        for test in quoted(cells[2]) {
            let name = test.rsplit("::").next().unwrap_or(test);
            if !names.iter().any(|known| known == name) {
                let what = format!("no test is called {name}: write it, or name the one that is");
                violations.push(Violation::of(&place, what));
            }
        }
    }
    assert!(
        promises > 0,
        "SECURITY.md has a table of promises and tests under `## Promises`"
    );
    assert_kept("Every promise of SECURITY.md names a test.", violations);
}

#[test]
fn the_architecture_names_every_crate_and_only_files_that_exist() {
    let text = text_of("ARCHITECTURE.md", "it is the map of the code");
    let is_named =
        |krate: &str| text.contains(krate) || text.contains(&format!("`{}`", crate_of(krate)));
    let mut violations: Vec<Violation> = crate_paths()
        .iter()
        .filter(|krate| !is_named(krate))
        .map(|krate| Violation::of("ARCHITECTURE.md", format!("does not name {krate}")))
        .collect();
    for (index, line) in text.lines().enumerate() {
        let paths = quoted(line).filter(|part| part.starts_with("crates/"));
        for path in paths.filter(|path| !root().join(path).exists()) {
            let what = format!("{path} does not exist: name the file that replaced it");
            violations.push(Violation::of(
                format!("ARCHITECTURE.md:{}", index + 1),
                what,
            ));
        }
    }
    assert_kept("ARCHITECTURE.md is complete and correct.", violations);
}

#[test]
fn required_documents_exist() {
    for (path, purpose) in [
        ("README.md", "the first page that a visitor reads"),
        ("CONTRIBUTING.md", "how to change the code"),
        ("CHANGELOG.md", "what changed for users"),
        ("docs/README.md", "the list of all guides"),
        ("LICENSE", "Apache-2.0"),
        ("Makefile", "the targets"),
        (".ci/run", "what a change must pass"),
    ] {
        assert!(!text_of(path, purpose).trim().is_empty(), "{path} is empty");
    }
}
