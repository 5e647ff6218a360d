//! The text of an error.

/// Formats an error with its sources on one line.
pub fn sentence(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Layer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    #[test]
    fn a_sentence_holds_every_source_in_order() {
        let file = Layer("the file is missing", None);
        let read = Layer("cannot read it", Some(Box::new(file)));
        let outer = Layer("invalid topology", Some(Box::new(read)));
        let due = "invalid topology: cannot read it: the file is missing";
        assert_eq!(sentence(&outer), due);
    }
}
