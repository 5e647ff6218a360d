//! The data types of the protocol, and the row type of the engine for each of them.

use albacore_engine::ElementType;

/// A numeric data type of the Open Inference Protocol. `BYTES` is not included: texts are converted
/// to numbers before they are written to rows ([`crate::columns::ColumnKind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// One byte, 0 or 1.
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    /// IEEE 754 binary16.
    Fp16,
    /// bfloat16, the upper half of a binary32.
    Bf16,
    /// IEEE 754 binary32.
    Fp32,
    /// IEEE 754 binary64.
    Fp64,
}

impl Datatype {
    /// The data types in the order of their declaration, with their names in the protocol.
    pub const NAMES: [(Self, &'static str); 13] = [
        (Self::Bool, "BOOL"),
        (Self::Uint8, "UINT8"),
        (Self::Uint16, "UINT16"),
        (Self::Uint32, "UINT32"),
        (Self::Uint64, "UINT64"),
        (Self::Int8, "INT8"),
        (Self::Int16, "INT16"),
        (Self::Int32, "INT32"),
        (Self::Int64, "INT64"),
        (Self::Fp16, "FP16"),
        (Self::Bf16, "BF16"),
        (Self::Fp32, "FP32"),
        (Self::Fp64, "FP64"),
    ];

    /// Returns the data type with this case-sensitive name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        found.map(|(datatype, _)| datatype)
    }

    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Size of one element in binary form, bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
        }
    }

    /// The float type that represents every value of this type exactly (64-bit integers: up to
    /// 2^53).
    pub const fn element(self) -> ElementType {
        match self {
            Self::Bool | Self::Uint8 | Self::Uint16 | Self::Int8 | Self::Int16 => ElementType::F32,
            Self::Fp16 | Self::Bf16 | Self::Fp32 => ElementType::F32,
            Self::Uint32 | Self::Int32 | Self::Uint64 | Self::Int64 | Self::Fp64 => {
                ElementType::F64
            }
        }
    }

    /// Smallest and largest value of an integer type (`BOOL`: 0 and 1); `None` for floats.
    pub const fn integer_range(self) -> Option<(i128, i128)> {
        match self {
            Self::Bool => Some((0, 1)),
            Self::Uint8 => Some((0, u8::MAX as i128)),
            Self::Uint16 => Some((0, u16::MAX as i128)),
            Self::Uint32 => Some((0, u32::MAX as i128)),
            Self::Uint64 => Some((0, u64::MAX as i128)),
            Self::Int8 => Some((i8::MIN as i128, i8::MAX as i128)),
            Self::Int16 => Some((i16::MIN as i128, i16::MAX as i128)),
            Self::Int32 => Some((i32::MIN as i128, i32::MAX as i128)),
            Self::Int64 => Some((i64::MIN as i128, i64::MAX as i128)),
            Self::Fp16 | Self::Bf16 | Self::Fp32 | Self::Fp64 => None,
        }
    }

    /// The data type of `element` in replies and metadata.
    pub const fn from_element(element: ElementType) -> Self {
        match element {
            ElementType::F32 => Self::Fp32,
            ElementType::F64 => Self::Fp64,
            ElementType::I32 => Self::Int32,
        }
    }
}
