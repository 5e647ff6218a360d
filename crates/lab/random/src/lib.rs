//! Pseudo-random numbers from a seed: equal seeds give equal streams on every machine.
//!
//! Recorded results depend on each generator: [`Xoshiro256`] draws the arrivals of simulations and
//! load tests, [`SplitMix64`] is for short streams that are drawn once.
#![forbid(unsafe_code)]

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, `end`), for `end` above 0: the high word of a product with `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }
}

/// xoshiro256++ (Blackman, Vigna 2019), with distributions of interarrival times.
#[derive(Clone, Debug)]
pub struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    /// Stream number `stream` of a seed. SplitMix64 fills the state, as the authors recommend.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = SplitMix64::new(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self {
            state: std::array::from_fn(|_| mixed.draw()),
        }
    }

    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Uniform, above 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        unit(self.draw())
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Gamma distributed with this shape and mean 1 (Marsaglia, Tsang 2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = self.unit().powf(1.0 / shape);
            return self.gamma_above_one(shape + 1.0) * boost / shape;
        }
        self.gamma_above_one(shape) / shape
    }

    fn gamma_above_one(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        // bound: each pass accepts with more than 95 %, so a hundred passes never happen.
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Box and Muller (1958); the second value is discarded.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Maps the 53 high bits to a number above 0 and at most 1.
fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance over many draws.
    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let n = 200_000;
        let all: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        (mean, variance)
    }

    #[test]
    fn gaps_have_mean_one_and_the_variance_of_their_shape() {
        let mut random = Xoshiro256::new(7, 1);
        let (mean, variance) = moments(|| random.exponential());
        assert!((mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.05);
        for shape in [0.05, 0.5, 1.0, 4.0, 15.0] {
            let (mean, variance) = moments(|| random.gamma(shape));
            assert!((mean - 1.0).abs() < 0.05, "{shape}: {mean}");
            assert!((variance * shape - 1.0).abs() < 0.1, "{shape}: {variance}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_others_do_not() {
        let draw = |seed, stream| Xoshiro256::new(seed, stream).draw();
        assert_eq!(draw(3, 4), draw(3, 4));
        assert_ne!(draw(3, 4), draw(3, 5));
        assert_ne!(draw(3, 4), draw(4, 4));
    }

    #[test]
    fn the_streams_are_those_of_the_published_generators() {
        assert_eq!(SplitMix64::new(0).draw(), 0xe220_a839_7b1d_cdaf);
        let mut random = SplitMix64::new(5);
        assert!((0..100).all(|_| random.below(3) < 3));
    }
}
