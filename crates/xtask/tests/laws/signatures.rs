//! The law on signatures: a tuple parameter of unlike values circumvents the lint on the number of
//! arguments; it should be a struct.

use crate::tree::{Source, Violation, assert_kept, sources};

/// Position after the bracket that closes the one at `open`. `->` is not a closing bracket.
fn closing(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for at in open..code.len() {
        match code[at] {
            b'(' | b'[' | b'<' | b'{' => depth += 1,
            b'>' if code[at - 1] == b'-' || code[at - 1] == b'=' => {}
            b')' | b']' | b'>' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The parts of `list` that are separated by commas outside of brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    while at < list.len() {
        match list.as_bytes()[at] {
            b'(' | b'[' | b'<' | b'{' => {
                at = closing(list.as_bytes(), at).unwrap_or(list.len());
                continue;
            }
            b',' => {
                parts.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(list[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Whether a parameter is `(a, b): (A, B)` with unlike types.
fn is_unlike_tuple(parameter: &str) -> bool {
    let Some(end) = parameter
        .starts_with('(')
        .then(|| closing(parameter.as_bytes(), 0))
        .flatten()
    else {
        return false;
    };
    let types = parameter[end..].trim_start().strip_prefix(':');
    let types = types.map(|types| types.trim().trim_start_matches('&'));
    let inner = types.and_then(|types| types.strip_prefix('(')?.strip_suffix(')'));
    let types = parts(inner.unwrap_or_default());
    types.windows(2).any(|pair| pair[0] != pair[1])
}

/// Lines of functions outside of tests with a tuple parameter of unlike values.
fn unlike_tuples(source: &Source) -> Vec<usize> {
    let code = source.code.join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let line = code[..at].matches('\n').count();
        let is_keyword = at == 0 || code.as_bytes()[at - 1].is_ascii_whitespace();
        let rest = &code[at + 3..];
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let Some(name) = name.filter(|&length| length > 0 && is_keyword && !source.is_test[line])
        else {
            continue;
        };
        let mut open = name;
        if rest.as_bytes()[open] == b'<' {
            open = closing(rest.as_bytes(), open).unwrap_or(open);
        }
        let Some(end) = closing(rest.as_bytes(), open) else {
            continue;
        };
        let parameters = parts(&rest[open + 1..end - 1]);
        found.extend(
            parameters
                .into_iter()
                .filter(|p| is_unlike_tuple(p))
                .map(|_| line),
        );
    }
    found
}

#[test]
fn no_parameter_is_a_tuple_of_unlike_values() {
    let sample = "fn f(a: u8, (b, c): (u8, [i64; 2])) {}\nfn g(&self, (b, c): (u8, u8)) {}\n\
                  fn h<'a, T: Fn(u8) -> u8>(\n    (b, c): &(\n        T,\n        Option<(u8, u8)>,\n    ),\n) {}\n";
    let sample = Source::parse("crates/placement/plan/src/x.rs".to_owned(), sample);
    assert_eq!(unlike_tuples(&sample), [0, 2], "the law sees them");

    let violations = sources()
        .into_iter()
        .filter(|source| !source.is_generated)
        .flat_map(|source| {
            let lines = unlike_tuples(&source).into_iter();
            lines
                .map(|index| Violation::at(&source, index, "name its values: use a struct"))
                .collect::<Vec<_>>()
        });
    assert_kept("No parameter is a tuple of unlike values.", violations);
}
