//! What probes and scrapers are told of this program.

use std::fmt;
use std::sync::Arc;

use albacore_program::Pages;

use crate::counts::Counts;
use crate::known::Known;
use crate::limits::FRESH_FOR;

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) known: Arc<Known>,
    pub(crate) counts: Counts,
}

impl Pages for Site {
    fn readiness(&self) -> (bool, String) {
        if self.known.is_fresh() {
            return (true, "[+] feed\n".to_owned());
        }
        let seconds = FRESH_FOR.as_secs();
        let text = format!("[-] feed: waits for word of the agent younger than {seconds} s\n");
        (false, text)
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        self.counts.text(&self.known)
    }
}
