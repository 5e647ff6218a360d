//! Vectors of `f64`, so that a loop is written once for every width. Every operation rounds as that
//! of `f64` does, so that every width gives the same bits.

/// A set of instructions for vectors of `f64`. A value exists only where the cpu has them.
pub trait Lanes: Copy {
    /// Doubles in a vector.
    const WIDTH: usize;
    type Vector: Copy;

    /// The same number in all lanes.
    fn splat(self, x: f64) -> Self::Vector;
    /// The first numbers of a slice, which must hold a vector.
    fn load(self, from: &[f64]) -> Self::Vector;
    /// Writes the first numbers of a slice, which must hold a vector.
    fn store(self, x: Self::Vector, to: &mut [f64]);
    /// Lane by lane.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Lane by lane.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Lane by lane.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Lane by lane.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a b + c, rounded once, lane by lane.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// a + b in the lanes whose bit is set, a in the others.
    #[inline(always)]
    fn add_where(self, bits: u64, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.select(bits, self.add(a, b), a)
    }
    /// `yes` in the lanes whose bit is set, `no` in the others.
    fn select(self, bits: u64, yes: Self::Vector, no: Self::Vector) -> Self::Vector;
}

/// A function that is compiled once for each set of instructions. It must be `#[inline(always)]`,
/// and so must every function that it calls in its loops.
pub trait WithSimd {
    fn with_simd<L: Lanes>(self, lanes: L);
}

/// Vectors of one double, for every cpu.
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
