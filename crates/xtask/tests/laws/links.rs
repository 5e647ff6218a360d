//! Links of all Markdown files, and the form of the pages in `docs/`.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Violation, assert_kept, files, root, text_of};

/// Most lines of documents that a newcomer reads first.
const LINES_MAX: [(&str, usize); 2] = [("README.md", 80), ("ARCHITECTURE.md", 200)];

/// Folders of `docs/` whose pages say for whom they are and what to read next.
const GUIDES: [&str; 5] = [
    "tutorials",
    "concepts",
    "operate",
    "reference",
    "benchmarks",
];

fn pages() -> Vec<String> {
    let files = files("").into_iter();
    files.filter(|path| path.ends_with(".md")).collect()
}

/// Lines of `text` outside fenced blocks, with their numbers and without inline code.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        match fence {
            Some(mark) if start.starts_with(mark) => fence = None,
            Some(_) => {}
            None if start.starts_with("```") => fence = Some("```"),
            None if start.starts_with("~~~") => fence = Some("~~~"),
            None => {
                let outside = line.split('`').step_by(2);
                let outside: Vec<&str> = outside.collect();
                lines.push((index + 1, outside.join("``")));
            }
        }
    }
    lines
}

/// Destinations of links and pictures in a line, and of link definitions.
fn destinations(line: &str) -> Vec<String> {
    let inline = line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        rest.split_once(')').map(|(destination, _)| destination)
    });
    let defined = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, destination)| destination);
    let found = inline.chain(defined);
    let word = |destination: &str| destination.split_whitespace().next().map(str::to_owned);
    found.filter_map(word).collect()
}

/// Anchors of the headings of `text`, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut known = BTreeMap::<String, usize>::new();
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c),
            _ => None,
        });
        let anchor: String = kept.flat_map(char::to_lowercase).collect();
        let count = known.entry(anchor.clone()).or_default();
        anchors.insert(match *count {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *count += 1;
    }
    anchors
}

/// `path` with `..` and `.` resolved.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Where a link in `page` leads: path below the root, and the anchor.
fn target<'a>(page: &str, destination: &'a str) -> (String, Option<&'a str>) {
    let (path, anchor) = match destination.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (destination, None),
    };
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = match path {
        "" => page.to_owned(),
        path => normal(&format!("{folder}/{path}")),
    };
    (path, anchor)
}

fn is_external(destination: &str) -> bool {
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| destination.starts_with(scheme))
}

#[test]
fn every_link_leads_somewhere() {
    let mut violations = Vec::new();
    for page in pages() {
        let text = text_of(&page, "it was just listed");
        for (number, line) in prose(&text) {
            for destination in destinations(&line) {
                if is_external(&destination) {
                    continue;
                }
                let place = format!("{page}:{number}");
                let (path, anchor) = target(&page, &destination);
                if !root().join(&path).exists() {
                    let what = format!("{destination}: {path} does not exist");
                    violations.push(Violation::of(place, what));
                    continue;
                }
                let Some(anchor) = anchor else { continue };
                let known = anchors(&text_of(&path, "a link leads there"));
                if !known.contains(anchor) {
                    let what = format!("{destination}: {path} has no heading #{anchor}");
                    violations.push(Violation::of(place, what));
                }
            }
        }
    }
    assert_kept("Links in documents lead somewhere.", violations);
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# A b: `c_d`!\n[x](y.md#z) ![p](q.svg \"t\") `[no](no.md)`\n```sh\n# no heading\n[n](o)\n```\n\
                ## A\n## A\n[r]: s.md\n";
    let found: Vec<String> = prose(text)
        .iter()
        .flat_map(|(_, line)| destinations(line))
        .collect();
    assert_eq!(found, ["y.md#z", "q.svg", "s.md"]);
    let anchors = anchors(text);
    let anchors: Vec<&str> = anchors.iter().map(String::as_str).collect();
    assert_eq!(anchors, ["a", "a-1", "a-b-c_d"]);
    let (path, anchor) = target("docs/a/b.md", "../c.md#d");
    assert_eq!((path.as_str(), anchor), ("docs/c.md", Some("d")));
    assert_eq!(target("docs/b.md", "#d").0, "docs/b.md");
}

#[test]
fn guides_say_for_whom_they_are_and_what_is_next() {
    let mut violations = Vec::new();
    for folder in GUIDES {
        for page in files(&format!("docs/{folder}")) {
            if !page.ends_with(".md") {
                continue;
            }
            let text = text_of(&page, "it was just listed");
            let mut paragraphs = text.trim_end().split("\n\n");
            let first = paragraphs.next().unwrap_or_default();
            if !first.starts_with("# ") {
                violations.push(Violation::of(&page, "begin with a title: # ..."));
            }
            if !paragraphs.next().unwrap_or_default().starts_with("For ") {
                let what = "say below the title for whom the page is: For ...";
                violations.push(Violation::of(&page, what));
            }
            if !paragraphs.last().unwrap_or_default().starts_with("Next: ") {
                let what = "end with what to read next: Next: [...](...).";
                violations.push(Violation::of(&page, what));
            }
        }
    }
    assert_kept("A page of docs/ has a reader and a way on.", violations);
}

#[test]
fn every_page_is_reached_from_the_first_one() {
    let mut reached = BTreeSet::from(["docs/README.md".to_owned()]);
    let mut open = vec!["docs/README.md".to_owned()];
    while let Some(page) = open.pop() {
        let text = text_of(&page, "a link leads there");
        for (_, line) in prose(&text) {
            for destination in destinations(&line) {
                let (path, _) = target(&page, &destination);
                let is_page = path.starts_with("docs/") && path.ends_with(".md");
                if !is_external(&destination) && is_page && reached.insert(path.clone()) {
                    open.push(path);
                }
            }
        }
    }
    let pages = files("docs");
    let lost = pages
        .iter()
        .filter(|path| path.ends_with(".md") && !reached.contains(*path));
    let lost =
        lost.map(|page| Violation::of(page, "no page links to it: `make docs` lists decisions"));
    assert_kept("Every page of docs/ is reached from docs/README.md.", lost);
}

#[test]
fn first_documents_are_short() {
    let lengths = LINES_MAX.map(|(path, most)| {
        let lines = text_of(path, "a newcomer reads it first").lines().count();
        (path, lines, most)
    });
    let long = lengths.into_iter().filter(|(_, lines, most)| lines > most);
    let long = long.map(|(path, lines, most)| {
        let what = format!("{lines} lines, at most {most}: move what is more to docs/");
        Violation::of(path, what)
    });
    assert_kept("The first documents are short.", long);
}
