//! Random numbers from a seed: xoshiro256++ by Blackman and Vigna, and the two distributions of
//! gaps between arrivals.

/// A stream of random numbers; equal seeds give equal streams.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream number `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mut next = || {
            // SplitMix64 fills the state, as the authors advise.
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
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

    /// Above 0, at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Exponentially distributed with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Gamma distributed with this shape and mean 1: Marsaglia and Tsang's method.
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = self.unit().powf(1.0 / shape);
            return self.gamma_above_one(shape + 1.0) * boost / shape;
        }
        self.gamma_above_one(shape) / shape
    }

    fn gamma_above_one(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        // bound: each turn ends it with more than 95 %, so a hundred turns never happen.
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

    /// Box and Muller; the second value is thrown away, arrivals of bursts are not the hot path.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let n = 200_000;
        let all: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        (mean, variance)
    }

    #[test]
    fn gaps_have_mean_one_and_the_variance_of_their_shape() {
        let mut random = Random::new(7, 1);
        let (mean, variance) = moments(|| random.exponential());
        assert!((mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.05);
        for shape in [0.05, 0.5, 1.0, 4.0] {
            let (mean, variance) = moments(|| random.gamma(shape));
            assert!((mean - 1.0).abs() < 0.05, "{shape}: {mean}");
            assert!((variance * shape - 1.0).abs() < 0.1, "{shape}: {variance}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_others_do_not() {
        let draw = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(draw(3, 4), draw(3, 4));
        assert_ne!(draw(3, 4), draw(3, 5));
        assert_ne!(draw(3, 4), draw(4, 4));
    }
}
