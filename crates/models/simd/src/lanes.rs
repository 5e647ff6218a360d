//! Vectors of `f64` lanes, so that a loop is written once for all vector widths. Every operation
//! rounds as the `f64` operation does, so all widths give the same bits.

/// An instruction set for vectors of `f64`. A value exists only if the cpu supports it.
pub trait Lanes: Copy {
    /// Number of lanes in a vector.
    const WIDTH: usize;
    type Vector: Copy;

    /// Broadcasts a number to all lanes.
    fn splat(self, x: f64) -> Self::Vector;
    /// Loads a vector from the start of a slice, which must be at least that long.
    fn load(self, from: &[f64]) -> Self::Vector;
    /// Stores a vector to the start of a slice, which must be at least that long.
    fn store(self, x: Self::Vector, to: &mut [f64]);
    /// Per lane.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Per lane.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Per lane.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Per lane.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Fused multiply-add per lane: a b + c, rounded once.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// a + b in lanes whose bit is set, a in the others.
    #[inline(always)]
    fn add_where(self, bits: u64, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.select(bits, self.add(a, b), a)
    }
    /// Blend: `yes` in lanes whose bit is set, `no` in the others.
    fn select(self, bits: u64, yes: Self::Vector, no: Self::Vector) -> Self::Vector;
}

/// A function that is compiled once per instruction set. It and every function called in its loops
/// must be `#[inline(always)]`.
pub trait WithSimd {
    fn with_simd<L: Lanes>(self, lanes: L);
}

/// Vectors of a single lane, for every cpu.
#[derive(Clone, Copy)]
pub struct ScalarF64;

impl Lanes for ScalarF64 {
    const WIDTH: usize = 1;
    type Vector = f64;

    #[inline(always)]
    fn splat(self, x: f64) -> f64 {
        x
    }

    #[inline(always)]
    fn load(self, from: &[f64]) -> f64 {
        from[0]
    }

    #[inline(always)]
    fn store(self, x: f64, to: &mut [f64]) {
        to[0] = x;
    }

    #[inline(always)]
    fn add(self, a: f64, b: f64) -> f64 {
        a + b
    }

    #[inline(always)]
    fn mul(self, a: f64, b: f64) -> f64 {
        a * b
    }

    #[inline(always)]
    fn sub(self, a: f64, b: f64) -> f64 {
        a - b
    }

    #[inline(always)]
    fn div(self, a: f64, b: f64) -> f64 {
        a / b
    }

    #[inline(always)]
    fn mul_add(self, a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn select(self, bits: u64, yes: f64, no: f64) -> f64 {
        if bits & 1 != 0 { yes } else { no }
    }
}
