//! The requests of a run: classes of models, outputs and rows, with their shares.

use crate::error::BenchError;

/// Number of distinct requests that are sent in turn: enough that the server's caches do not see
/// the same rows each time.
pub(crate) const REQUESTS: usize = 512;

/// Maximum number of classes of a mix.
const CLASSES_MAX: usize = 8;

/// Maximum number of rows of a request.
const ROWS_MAX: usize = 1 << 20;

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// The index of its model in [`crate::Spec::models`].
    pub(crate) model: usize,
    /// The requested output; `None` for the server's default.
    pub(crate) output: Option<String>,
    pub(crate) rows: usize,
    share: f64,
}

/// Parses `--mix`. An item without a model is split equally among `models`.
pub(crate) fn parse(text: &str, models: &[String]) -> Result<Vec<Class>, BenchError> {
    let mut classes = Vec::new();
    for item in text.split(',') {
        let (model, rest) = match item.split_once('/') {
            None => (None, item),
            Some((name, rest)) => {
                let model = models.iter().position(|model| model == name);
                let model = model.ok_or_else(|| {
                    let what = "it is not one of --model";
                    BenchError::Usage(format!("--mix {text}: model {name:?}: {what}"))
                })?;
                (Some(model), rest)
            }
        };
        let due = || {
            BenchError::Usage(format!(
                "--mix {text}: expected up to {CLASSES_MAX} of [MODEL/][OUTPUT:]ROWS[=SHARE], \
                 separated by commas, such as output:1=9,contribs:10=1"
            ))
        };
        let class = class(rest).ok_or_else(due)?;
        let of_models = match model {
            Some(model) => model..model + 1,
            None => 0..models.len(),
        };
        let share = class.share / of_models.len() as f64;
        classes.extend(of_models.map(|model| {
            let name = match models {
                [_] => class.name.clone(),
                _ => format!("{}/{}", models[model], class.name),
            };
            Class {
                name,
                model,
                share,
                ..class.clone()
            }
        }));
        if classes.len() > CLASSES_MAX {
            return Err(due());
        }
    }
    Ok(classes)
}

/// Parses one class, of the first model.
fn class(text: &str) -> Option<Class> {
    let (name, share) = match text.split_once('=') {
        None => (text, 1.0),
        Some((name, share)) => (name, share.parse().ok()?),
    };
    let (output, rows) = match name.rsplit_once(':') {
        None => (None, name),
        Some((output, rows)) => (Some(output), rows),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let rows = rows
        .parse()
        .ok()
        .filter(|rows| (1..=ROWS_MAX).contains(rows))?;
    let is_right = f64::is_finite(share)
        && share > 0.0
        && output.is_none_or(|output| !output.is_empty() && output.chars().all(is_plain));
    is_right.then(|| Class {
        name: name.to_owned(),
        model: 0,
        output: output.map(str::to_owned),
        rows,
        share,
    })
}

/// Assigns a class to each of [`REQUESTS`] requests, in proportion to the shares and interleaved
/// evenly. Truncated to `most` requests, but never below the length at which every class occurs.
pub(crate) fn spread(classes: &[Class], most: usize) -> Vec<usize> {
    let total: f64 = classes.iter().map(|class| class.share).sum();
    let mut owed = vec![0.0; classes.len()];
    let turn = |_| {
        for (owed, class) in owed.iter_mut().zip(classes) {
            *owed += class.share / total;
        }
        let most = (0..owed.len()).max_by(|&a, &b| owed[a].total_cmp(&owed[b]));
        let most = most.unwrap_or_default();
        owed[most] -= 1.0;
        most
    };
    let mut spread: Vec<usize> = (0..REQUESTS).map(turn).collect();
    let firsts = (0..classes.len()).filter_map(|class| spread.iter().position(|&of| of == class));
    let all = firsts.max().map_or(0, |last| last + 1);
    spread.truncate(most.max(all));
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_spread_by_its_shares() {
        let classes = parse("output:1=3,contribs:10,7=0.5", &models(&["m"])).unwrap();
        assert_eq!(classes[1].output.as_deref(), Some("contribs"));
        assert_eq!((classes[1].rows, &*classes[2].name), (10, "7"));
        assert_eq!(classes[2].output, None);
        let few = spread(&classes, 4);
        assert!(
            (0..3).all(|class| few.contains(&class)) && few.len() < 20,
            "{few:?}"
        );
        let spread = spread(&classes, REQUESTS);
        let count = |class| spread.iter().filter(|&&it| it == class).count() as f64;
        for (class, share) in [(0, 3.0), (1, 1.0), (2, 0.5)] {
            let due = REQUESTS as f64 * share / 4.5;
            assert!((count(class) - due).abs() <= 1.0, "{class}");
        }
    }

    fn models(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn an_item_applies_to_its_model_or_to_all() {
        let classes = parse("b/contribs:10=2,1=3", &models(&["a", "b"])).unwrap();
        let seen = classes.iter().map(|of| (&*of.name, of.model, of.share));
        let due = [("b/contribs:10", 1, 2.0), ("a/1", 0, 1.5), ("b/1", 1, 1.5)];
        assert_eq!(seen.collect::<Vec<_>>(), due);
        let said = parse("c/1", &models(&["a", "b"])).unwrap_err().to_string();
        assert!(said.contains("--mix") && said.contains("\"c\""), "{said}");
    }

    #[test]
    fn invalid_mixes_are_rejected() {
        for text in [
            "",
            "0",
            "x",
            ":1",
            "a\"b:1",
            "1=0",
            "1=-1",
            "1=nan",
            "1,",
            "1,1,1,1,1,1,1,1,1",
        ] {
            assert!(
                parse(text, &models(&["m"]))
                    .unwrap_err()
                    .to_string()
                    .contains("--mix"),
                "{text}"
            );
        }
    }
}
