//! What a request asks of a model: kinds of output, and element types.

/// A kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The prediction after the objective's transformation.
    Value,
    /// The raw score.
    Margin,
    /// SHAP contributions, the last column is the bias.
    Contribs,
    /// SHAP interactions.
    Interactions,
    /// The leaf that each tree puts a row in.
    Leaf,
}

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 32-bit signed integer.
    I32,
}

/// Every kind, in the order in which outputs lie in memory.
pub(super) const KINDS: [Kind; 5] = [
    Kind::Value,
    Kind::Margin,
    Kind::Contribs,
    Kind::Interactions,
    Kind::Leaf,
];

/// The kinds of output that one request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KindSet(u8);

impl KindSet {
    /// No kind.
    pub const EMPTY: Self = Self(0);

    /// The set that holds `kind` only.
    #[must_use]
    pub const fn only(kind: Kind) -> Self {
        Self(1 << kind as u8)
    }

    /// This set and `kind`.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Whether `kind` is in the set.
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Whether no kind is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The kinds of the set in memory order.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        KINDS.into_iter().filter(move |&kind| self.contains(kind))
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::EMPTY, Self::with)
    }
}
