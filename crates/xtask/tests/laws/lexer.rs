//! Blanks out comments and the contents of literals in Rust source text, line by line, so that only
//! code remains.

/// Replaces every character of a comment, a string or a character literal in `text` by a space;
/// newlines are kept, so that line numbers do not change.
pub(crate) fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => until(&chars, at, |c| c[0] == '\n'),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' | 'b' | 'c' if !is_word(&chars, at) => prefixed_end(&chars, at),
            '\'' => char_end(&chars, at),
            _ => at,
        };
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    code
}

/// Whether the character before `at` is part of a word, so that `at` cannot start a literal.
fn is_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn until(chars: &[char], at: usize, is_end: impl Fn(&[char]) -> bool) -> usize {
    (at..chars.len())
        .find(|&i| is_end(&chars[i..]))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

/// The end of the string whose opening quote is at `at`.
fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// The end of `r"..."`, `r#"..."#`, `b"..."`, `br"..."`, `b'x'`, `c"..."`; `at` if there is no such
/// literal.
fn prefixed_end(chars: &[char], at: usize) -> usize {
    let mut i = at;
    while i < chars.len() && i < at + 2 && "rbc".contains(chars[i]) {
        i += 1;
    }
    let is_raw = chars[at..i].contains(&'r');
    let hashes = chars[i..].iter().take_while(|&&c| c == '#').count();
    match chars.get(i + hashes) {
        Some('"') if is_raw => {
            let close: Vec<char> = std::iter::once('"').chain(vec!['#'; hashes]).collect();
            until(chars, i + hashes + 1, |c| c.starts_with(&close)) + close.len()
        }
        Some('"') if hashes == 0 => string_end(chars, i),
        Some('\'') if hashes == 0 && chars[at] == 'b' => char_end(chars, i),
        _ => at,
    }
    .min(chars.len())
}

/// The end of a character literal; `at` for a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => until(chars, at + 3, |c| c[0] == '\'') + 1,
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

#[test]
fn comments_and_texts_are_blanked_and_code_stays() {
    let text =
        "let a = \"x // y\"; // loop\nlet b = r#\"unsafe \" \"#; /* loop\n{ */ 'x'; fn f<'a>() {}";
    let code = code_of(text);
    assert_eq!(code.lines().count(), 3);
    assert_eq!(
        code.split_whitespace().collect::<Vec<_>>().join(" "),
        "let a = ; let b = ; ; fn f<'a>() {}"
    );
    let literals = "b'\\'' + b\"a\\\"\" + '\\u{1}' + x";
    assert_eq!(
        code_of(literals).split_whitespace().collect::<Vec<_>>(),
        ["+", "+", "+", "x"]
    );
}
