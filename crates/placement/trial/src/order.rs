//! Order of the arms within rounds.

use albacore_values::XorShift64;

/// Generates orders in pairs of rounds: a random one, then its reverse. Over a pair, a linear
/// change of the load favors no arm, and no arm always follows the same other one.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    random: XorShift64,
    /// The last order, until its reverse has been used.
    last: Option<Vec<usize>>,
}

impl Order {
    pub(crate) const fn new(seed: u64) -> Self {
        // The seed of this generator must not be 0.
        let random = XorShift64::new((seed ^ 0x9e37_79b9_7f4a_7c15) | 1);
        Self { random, last: None }
    }

    /// The order of these arms in the next round.
    pub(crate) fn next(&mut self, mut arms: Vec<usize>) -> Vec<usize> {
        if let Some(mut order) = self.last.take() {
            order.retain(|arm| arms.contains(arm));
            order.reverse();
            if order.len() == arms.len() {
                return order;
            }
        }
        for last in (1..arms.len()).rev() {
            arms.swap(last, self.random.below(last + 1));
        }
        self.last = Some(arms.clone());
        arms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_pairs_of_rounds_every_arm_has_the_same_mean_position() {
        let mut order = Order::new(7);
        let mut firsts = [0; 4];
        for _ in 0..200 {
            let [one, other] = [0; 2].map(|_| order.next(vec![0, 1, 2, 3]));
            assert!(one.iter().eq(other.iter().rev()), "{one:?} {other:?}");
            firsts[one[0]] += 1;
        }
        assert!(firsts.iter().all(|&count| count > 25), "{firsts:?}");
    }

    #[test]
    fn an_eliminated_arm_is_in_no_further_order() {
        let mut order = Order::new(7);
        order.next(vec![0, 1, 2, 3]);
        let mut next = order.next(vec![0, 2]);
        next.sort_unstable();
        assert_eq!(next, [0, 2]);
    }
}
