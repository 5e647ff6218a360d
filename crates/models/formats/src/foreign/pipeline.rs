//! Finds the first step of a pickled scikit-learn pipeline for the error message. The pickle is not
//! loaded; only its short strings are read.

/// Opcode of a string with a one-byte length.
const SHORT_STRING: u8 = 0x8c;

/// Modules whose classes are tree models.
const TREE_MODULES: [&str; 4] = ["sklearn.ensemble", "sklearn.tree", "xgboost", "lightgbm"];

/// Returns name and class of the first step if the pickle is a pipeline that does not start with a
/// tree model.
pub(super) fn first_step(bytes: &[u8]) -> Option<(&str, &str)> {
    let strings = short_strings(bytes);
    let mut strings = strings.iter().copied();
    if strings.next()? != "sklearn.pipeline" {
        return None;
    }
    strings.find(|&text| text == "steps")?;
    let (step, module, class) = (strings.next()?, strings.next()?, strings.next()?);
    let is_tree_model = TREE_MODULES.iter().any(|prefix| module.starts_with(prefix));
    (!is_tree_model).then_some((step, class))
}

/// Returns everything that looks like a short string, in order.
fn short_strings(bytes: &[u8]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = bytes;
    // bound: each iteration consumes at least a byte
    while let Some(at) = rest.iter().position(|&byte| byte == SHORT_STRING) {
        rest = &rest[at + 1..];
        let text = rest
            .split_first()
            .and_then(|(&length, after)| after.get(..length.into()));
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        let is_name = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        if let Some(text) = text.filter(is_name) {
            found.push(text);
            rest = &rest[text.len() + 1..];
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pickle(strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0x80, 4, 0x95, 0, 0];
        for text in strings {
            bytes.extend([SHORT_STRING, text.len() as u8]);
            bytes.extend(text.as_bytes());
            bytes.push(0x94);
        }
        bytes
    }

    #[test]
    fn the_first_pipeline_step_is_found_unless_it_is_a_tree_model() {
        let scaler = ["scale", "sklearn.preprocessing._data", "StandardScaler"];
        let head = ["sklearn.pipeline", "Pipeline", "steps"];
        let bytes = pickle(&[&head[..], &scaler].concat());
        assert_eq!(first_step(&bytes), Some(("scale", "StandardScaler")));
        let trees = [
            "trees",
            "sklearn.ensemble._forest",
            "RandomForestClassifier",
        ];
        assert_eq!(first_step(&pickle(&[&head[..], &trees].concat())), None);
        assert_eq!(first_step(&pickle(&scaler)), None);
        assert_eq!(first_step(&pickle(&head)), None);
        assert_eq!(first_step(&bytes[..40]), None);
    }
}
