//! Rules that depend on the XGBoost version that wrote a file.
//!
//! XGBoost applies the rules of the library that loads a file, so predictions can change with an
//! upgrade. Here the version in the file determines the rules: predictions are those that were
//! validated when the model was trained. Loading and saving the file with a newer XGBoost changes
//! its version and therefore the rules, as in XGBoost. Measured in `tests/data/models/edges`.

/// Oldest and newest version for which the tests compare all predictions.
const TESTED: [[i32; 2]; 2] = [[1, 7], [3, 4]];

/// Version in a file: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct XgboostVersion(Option<[i32; 3]>);

impl XgboostVersion {
    /// A file without a version is read by the rules of the newest version.
    pub(super) fn of(numbers: Option<&[i32]>) -> Self {
        let numbers = numbers.filter(|numbers| !numbers.is_empty());
        Self(numbers.map(|numbers| {
            let part = |index: usize| numbers.get(index).copied().unwrap_or(0);
            [part(0), part(1), part(2)]
        }))
    }

    fn is_since(self, first: [i32; 3]) -> bool {
        self.0.is_none_or(|version| version >= first)
    }

    /// Logistic objectives clamp the base score to [1e-6, 1 - 1e-6].
    pub(super) fn clamps_base_score(self) -> bool {
        self.is_since([3, 2, 0])
    }

    /// Gamma regression rejects a base score that is not positive.
    pub(super) fn checks_gamma(self) -> bool {
        self.is_since([3, 1, 0])
    }

    /// A base score set neither by the user nor in training is a margin.
    pub(super) fn unset_base_score_is_margin(self) -> bool {
        self.is_since([3, 1, 0])
    }

    /// Quantiles of a row are sorted.
    pub(super) fn sorts_quantiles(self) -> bool {
        self.is_since([3, 4, 0])
    }

    /// The base score of `binary:logitraw` is a probability; a margin in later versions.
    pub(super) fn logitraw_base_is_probability(self) -> bool {
        !self.is_since([1, 3, 1])
    }

    /// A category that a split does not list goes in the default direction; left in later versions.
    pub(super) fn unlisted_categories_go_default(self) -> bool {
        self.is_since([1, 6, 0]) && !self.is_since([1, 7, 3])
    }

    /// Category names outside of ASCII are cut by characters although offsets count bytes.
    pub(super) fn cuts_categories_by_chars(self) -> bool {
        !self.is_since([3, 4, 0])
    }

    /// Returns notices for the user about this version.
    pub(super) fn notices(self) -> Vec<String> {
        let [oldest, newest] = TESTED;
        let range = format!("{}.{} to {}.{}", oldest[0], oldest[1], newest[0], newest[1]);
        let notice = match self.0 {
            None => format!(
                "the file has no XGBoost version; it is read as {}.{} reads it. Load it with the \
                 XGBoost that trained it and save it again (save_model)",
                newest[0], newest[1]
            ),
            Some([1, minor, _]) if minor < 4 => format!(
                "written by XGBoost {self}, older than the tested versions ({range}); it adds up \
                 trees in another order, so values can differ from its own in the last digits. For \
                 the values of a newer XGBoost load the file with it and save it again (save_model)"
            ),
            Some([major, minor, _]) if [major, minor] < oldest => format!(
                "written by XGBoost {self}, older than the tested versions ({range}). Compare some \
                 predictions, or load the file with a newer XGBoost and save it again (save_model)"
            ),
            Some([major, minor, _]) if [major, minor] > newest => format!(
                "written by XGBoost {self}, newer than the tested versions ({range}): compare some \
                 predictions with it"
            ),
            Some(_) => return Vec::new(),
        };
        vec![notice]
    }
}

impl std::fmt::Display for XgboostVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some([major, minor, patch]) => write!(f, "{major}.{minor}.{patch}"),
            None => Ok(()),
        }
    }
}
