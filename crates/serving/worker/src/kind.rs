//! The kinds of output that a request may ask for.

use albacore_trees::Kind;

/// Name of a kind in metrics and in the server's state.
#[must_use]
pub const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Value => "value",
        Kind::Margin => "margin",
        Kind::Contribs => "contribs",
        Kind::Interactions => "interactions",
        Kind::Leaf => "leaf",
    }
}

/// The same for requests that may have been rejected before their body was read.
#[must_use]
pub fn kind_or_unread(kind: Option<Kind>) -> &'static str {
    kind.map_or("unread", kind_name)
}

/// The kinds of output that one request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KindSet(u8);

impl KindSet {
    pub const EMPTY: Self = Self(0);

    /// The set that holds `kind` only.
    #[must_use]
    pub const fn only(kind: Kind) -> Self {
        Self(1 << kind as u8)
    }

    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as bits, as it is written to the ring.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set with these bits; unknown bits are ignored.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The most expensive kind, which determines the queue of a request.
    #[must_use]
    pub fn costliest(self) -> Option<Kind> {
        const BY_COST: [Kind; 5] = [
            Kind::Interactions,
            Kind::Contribs,
            Kind::Leaf,
            Kind::Margin,
            Kind::Value,
        ];
        BY_COST.into_iter().find(|&kind| self.contains(kind))
    }

    /// The kinds of the set in the order of their outputs in memory.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL
            .into_iter()
            .filter(move |&kind| self.contains(kind))
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::EMPTY, Self::with)
    }
}
