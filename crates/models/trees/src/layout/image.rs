//! A compiled model as one block of bytes that many processes can map and read in place.
//!
//! A header of [`HEADER_WORDS`] 8-byte words is followed by arrays, each padded to 8 bytes. It
//! contains no pointers, so it can be mapped at any address. The length of each array follows from
//! the counts in the header. The byte order is native; an image of another byte order has another
//! magic number.

use albacore_formats::Library;

/// First word of an image: name and version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"albtree\x06");
/// Words of the header.
pub(crate) const HEADER_WORDS: usize = 33 + TUNING_WORDS;
/// Leading words that are excluded from the checksum: magic, length and the checksum itself.
pub(crate) const UNCHECKED_WORDS: usize = 3;

/// Number of arrays of the binned form.
pub(crate) const BINNED_ARRAYS: usize = 11;

/// Words at the end of the header with measurements, see `kernel::selection`.
pub(crate) const TUNING_WORDS: usize = 10;

/// Number of arrays of the tree bundles.
pub(crate) const BUNDLE_ARRAYS: usize = 7;

/// Bits of the properties word of the header.
pub(crate) mod property {
    pub(crate) const AVERAGED: u64 = 1;
    pub(crate) const VECTOR_LEAVES: u64 = 2;
    pub(crate) const COVERS: u64 = 4;
    /// All bits known to this version.
    pub(crate) const ALL: u64 = AVERAGED | VECTOR_LEAVES | COVERS;
}

/// Header after magic, length and checksum, in the order of the image.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ImageHeader {
    pub(crate) library: u64,
    pub(crate) properties: u64,
    pub(crate) transform: u64,
    pub(crate) parameter: u64,
    pub(crate) features: u64,
    pub(crate) groups: u64,
    pub(crate) trees: u64,
    pub(crate) nodes: u64,
    pub(crate) iterations: u64,
    pub(crate) leaf_vectors: u64,
    pub(crate) sets: u64,
    pub(crate) set_words: u64,
    /// Lengths of the arrays of the binned form.
    pub(crate) binned: [u64; BINNED_ARRAYS],
    /// Lengths of the arrays of the tree bundles.
    pub(crate) bundles: [u64; BUNDLE_ARRAYS],
    pub(crate) tuning: [u64; TUNING_WORDS],
}

impl ImageHeader {
    /// Returns all words in the order of the image.
    fn fields(&mut self) -> impl Iterator<Item = &mut u64> {
        let numbers = [
            &mut self.library,
            &mut self.properties,
            &mut self.transform,
            &mut self.parameter,
            &mut self.features,
            &mut self.groups,
            &mut self.trees,
            &mut self.nodes,
            &mut self.iterations,
            &mut self.leaf_vectors,
            &mut self.sets,
            &mut self.set_words,
        ];
        let arrays = self.binned.iter_mut().chain(&mut self.bundles);
        numbers.into_iter().chain(arrays).chain(&mut self.tuning)
    }

    fn words(mut self) -> Vec<u64> {
        self.fields().map(|word| *word).collect()
    }

    /// Reads the header from the first words of an image.
    pub(crate) fn from_words(words: &[u64; HEADER_WORDS]) -> Self {
        let mut header = Self::default();
        for (field, word) in header.fields().zip(&words[UNCHECKED_WORDS..]) {
            *field = *word;
        }
        header
    }
}

/// Returns the code of a library in an image.
pub(crate) fn library_code(library: Library) -> u64 {
    match library {
        Library::Xgboost => 0,
        Library::Lightgbm => 1,
        Library::Sklearn => 2,
    }
}

/// Returns a checksum that changes with any flipped bit.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(words.len() as u64, |sum, word| {
        (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

/// Returns the checksum of an image with these words.
pub(crate) fn checksum_of_image(words: &[u64]) -> u64 {
    checksum(&words[UNCHECKED_WORDS..])
}

/// A compiled model in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    words: Vec<u64>,
}

impl Image {
    /// Creates an image without arrays; add them with [`push`](Self::push), then write the header
    /// with [`seal`](Self::seal).
    pub(crate) fn new() -> Self {
        let words = vec![0; HEADER_WORDS];
        Self { words }
    }

    /// Writes the header with length and checksum; must follow the last array.
    pub(crate) fn seal(&mut self, header: ImageHeader) {
        self.words[0] = MAGIC;
        self.words[1] = self.words.len() as u64 * 8;
        self.words[UNCHECKED_WORDS..HEADER_WORDS].copy_from_slice(&header.words());
        self.words[2] = checksum_of_image(&self.words);
    }

    /// Replaces the measurements in the header.
    pub(crate) fn set_tuning(&mut self, tuning: &[u64; TUNING_WORDS]) {
        self.words[HEADER_WORDS - TUNING_WORDS..HEADER_WORDS].copy_from_slice(tuning);
        self.words[2] = checksum_of_image(&self.words);
    }

    /// Returns the bytes, for a file or shared memory; they are aligned to 8 bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    /// Appends an array, padded to 8 bytes; returns its length.
    pub(crate) fn push<T: bytemuck::NoUninit>(&mut self, array: &[T]) -> u64 {
        let (whole, rest) = bytemuck::cast_slice::<T, u8>(array).as_chunks::<8>();
        self.words
            .extend(whole.iter().map(|word| u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.words.push(u64::from_ne_bytes(last));
        }
        array.len() as u64
    }
}
