//! A scenario file as a tree with the location of every value.

use albacore_settings::yaml_tree;

use super::invalid::{Invalid, Place};

/// Maximum size of a scenario file.
const FILE_BYTES_MAX: usize = 16 << 20;

/// Maximum nesting depth; a valid scenario has three levels.
const DEPTH_MAX: usize = 16;

/// A value and its location.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Parses the text of a file.
    pub(super) fn read(text: &str) -> Result<Self, Invalid> {
        if text.len() > FILE_BYTES_MAX {
            let problem = format!("is longer than {FILE_BYTES_MAX} bytes");
            return Err(Invalid::new(Place::Line(1), "the file", problem));
        }
        let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
        let options = serde_saphyr::options! { budget: budget, with_snippet: false };
        let read = serde_saphyr::from_str_with_options::<yaml_tree::YamlNode>(text, options);
        read.map(Self::from).map_err(|error| {
            let error = error.without_snippet();
            let place = error.location();
            let (line, column) = place.map_or((1, 1), |place| (place.line(), place.column()));
            let problem = error.to_string();
            let problem = problem.lines().next().unwrap_or_default();
            match key_before(text, line, column) {
                Some(key) => Invalid::new(Place::Line(line), key, problem),
                None => {
                    let problem = format!("is not YAML: {problem}");
                    Invalid::new(Place::Line(line), "the file", problem)
                }
            }
        })
    }

    /// Sets `value` at the dotted `path`, for `--set`.
    pub(super) fn set(&mut self, path: &str, value: &str) -> Result<(), Invalid> {
        let place = Place::Set(format!("{path}={value}"));
        let mut read = Self::read(value).map_err(|invalid| Invalid {
            place: place.clone(),
            ..invalid
        })?;
        read.put_at(&place);
        let mut node = self;
        for part in path.split('.') {
            if !matches!(node.kind, Kind::Map(_)) {
                node.kind = Kind::Map(Vec::new());
            }
            let Kind::Map(entries) = &mut node.kind else {
                return Ok(());
            };
            let index = match entries.iter().position(|(key, _)| key == part) {
                Some(index) => index,
                None => {
                    let place = place.clone();
                    let kind = Kind::Null;
                    entries.push((part.to_owned(), Self { place, kind }));
                    entries.len() - 1
                }
            };
            node = &mut entries[index].1;
        }
        *node = read;
        Ok(())
    }

    fn put_at(&mut self, place: &Place) {
        self.place = place.clone();
        match &mut self.kind {
            Kind::List(items) => items.iter_mut().for_each(|item| item.put_at(place)),
            Kind::Map(entries) => entries.iter_mut().for_each(|(_, n)| n.put_at(place)),
            Kind::Null | Kind::Number(_) | Kind::Text(_) => {}
        }
    }
}

/// The key that precedes this position on the same line, if any.
fn key_before(text: &str, line: u64, column: u64) -> Option<&str> {
    let line = text.lines().nth(line.checked_sub(1)? as usize)?;
    let end = line.char_indices().nth(column.checked_sub(1)? as usize);
    let before = &line[..end.map_or(line.len(), |(at, _)| at)];
    let (key, _) = before.rsplit_once(':')?;
    let key = key.rsplit([' ', '{', ',']).next()?;
    (!key.is_empty()).then_some(key)
}

impl From<yaml_tree::YamlNode> for Node {
    fn from(node: yaml_tree::YamlNode) -> Self {
        Self {
            place: Place::Line(node.line),
            kind: match node.kind {
                yaml_tree::YamlValue::Null => Kind::Null,
                yaml_tree::YamlValue::Bool(value) => Kind::Text(value.to_string()),
                yaml_tree::YamlValue::Number(value) => {
                    Kind::Number(value.as_f64().unwrap_or(f64::NAN))
                }
                yaml_tree::YamlValue::Text(text) => Kind::Text(text),
                yaml_tree::YamlValue::List(items) => {
                    Kind::List(items.into_iter().map(Self::from).collect())
                }
                yaml_tree::YamlValue::Map(entries) => Kind::Map(
                    entries
                        .into_iter()
                        .map(|entry| (entry.key, entry.value.into()))
                        .collect(),
                ),
            },
        }
    }
}
