//! Lists in requests with a limited number of members.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

/// A list of at most `MAX` members; a longer list is rejected before it is stored.
pub(super) struct BoundedList<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T, const MAX: usize>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Members<T, MAX> {
            type Value = BoundedList<T, MAX>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "an array of at most {MAX} entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(member) = members.next_element()? {
                    if list.len() == MAX {
                        let mut all = MAX + 1;
                        // bound: members in the body, none of which is stored
                        while members.next_element::<IgnoredAny>()?.is_some() {
                            all += 1;
                        }
                        let problem = format!("at most {MAX} entries are allowed, got {all}");
                        return Err(A::Error::custom(problem));
                    }
                    list.push(member);
                }
                Ok(BoundedList(list))
            }
        }
        deserializer.deserialize_seq(Members(std::marker::PhantomData))
    }
}
