//! Parses `/proc/PID/stat`. The second field is the comm in parentheses, which may contain any byte
//! except NUL, including `) R 1 (` and newlines. Therefore the other fields are parsed from the
//! *last* closing parenthesis.

/// The fields of a `stat` file that are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    pub id: i32,
    /// The comm, at most 15 bytes in current kernels; not necessarily UTF-8.
    pub comm: Vec<u8>,
    /// State letter: `R S D T t Z X I`...
    pub state: u8,
    /// Pid of the parent process.
    pub parent: i32,
    /// True for a kernel thread.
    pub is_kernel: bool,
    /// User and system time, in clock ticks.
    pub cpu_ticks: u64,
    /// Start time in clock ticks since boot. Together with the id it identifies a thread uniquely,
    /// even if ids are reused.
    pub start_ticks: u64,
}

impl Stat {
    /// True if the process or thread has exited and waits to be reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Flag of kernel threads in field 9.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Error of parsing a `stat` file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StatError {
    /// There is no comm in parentheses.
    #[error("the command name in parentheses is missing")]
    NoComm,
    /// A field is missing or is not a number.
    #[error("field {field} is missing or not a number")]
    Field {
        /// Field number as in proc(5), from 1.
        field: usize,
    },
}

/// Parses the content of `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
///
/// # Errors
/// The text is truncated or is not a `stat` file.
pub fn parse_stat(bytes: &[u8]) -> Result<Stat, StatError> {
    let open = bytes
        .iter()
        .position(|&b| b == b'(')
        .ok_or(StatError::NoComm)?;
    let close = bytes
        .iter()
        .rposition(|&b| b == b')')
        .ok_or(StatError::NoComm)?;
    if close <= open {
        return Err(StatError::NoComm);
    }
    let id = number(bytes[..open].trim_ascii(), 1)?;
    // Field 3 is the first one after the comm.
    let fields: Vec<&[u8]> = bytes[close + 1..]
        .split(|b| b.is_ascii_whitespace())
        .filter(|field| !field.is_empty())
        .collect();
    let field = |n: usize| {
        fields
            .get(n - 3)
            .copied()
            .ok_or(StatError::Field { field: n })
    };
    let state = field(3)?;
    if state.len() != 1 {
        return Err(StatError::Field { field: 3 });
    }
    let user: u64 = number(field(14)?, 14)?;
    let system: u64 = number(field(15)?, 15)?;
    Ok(Stat {
        id,
        comm: bytes[open + 1..close].to_vec(),
        state: state[0],
        parent: number(field(4)?, 4)?,
        is_kernel: number::<u64>(field(9)?, 9)? & PF_KTHREAD != 0,
        cpu_ticks: user.saturating_add(system),
        start_ticks: number(field(22)?, 22)?,
    })
}

fn number<T: std::str::FromStr>(bytes: &[u8], field: usize) -> Result<T, StatError> {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(StatError::Field { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `stat` of a sleeping shell, recorded on Linux 6.18; `{}` is replaced by the comm.
    const RECORDED: &str = "4711 ({}) S 1 4711 4711 34816 4712 4194304 1022 0 0 0 12 30 0 0 20 0 1 0 \
        987654 5713920 912 18446744073709551615 1 1 0 0 0 0 65536 3670020 1266777851 1 0 0 17 1 0 0 0 \
        0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn a_recorded_stat_is_read() {
        let stat = parse_stat(RECORDED.replace("{}", "bash").as_bytes()).unwrap();
        let expected = Stat {
            id: 4711,
            comm: b"bash".to_vec(),
            state: b'S',
            parent: 1,
            is_kernel: false,
            cpu_ticks: 42,
            start_ticks: 987_654,
        };
        assert_eq!(stat, expected);
    }

    #[test]
    fn a_hostile_comm_changes_nothing_but_the_comm() {
        let plain = parse_stat(RECORDED.replace("{}", "bash").as_bytes()).unwrap();
        for comm in [
            ") R 1 (",
            "a) Z 9",
            "((((",
            "))))",
            "x\ny z\n",
            "",
            " ",
            "1 (a) S 2 3 4",
        ] {
            let stat = parse_stat(RECORDED.replace("{}", comm).as_bytes()).unwrap();
            assert_eq!(
                stat,
                Stat {
                    comm: comm.as_bytes().to_vec(),
                    ..plain.clone()
                },
                "{comm:?}"
            );
        }
        let mut bytes = RECORDED.replace("{}", "??").into_bytes();
        let at = bytes.iter().position(|&b| b == b'?').unwrap();
        bytes[at] = 0xff;
        assert_eq!(parse_stat(&bytes).unwrap().comm, [0xff, b'?']);
    }

    #[test]
    fn texts_cut_anywhere_are_refused_or_read_right_and_never_panic() {
        let whole = RECORDED.replace("{}", ") R 1 (");
        let parsed = parse_stat(whole.as_bytes()).unwrap();
        for end in 0..whole.len() {
            if let Ok(stat) = parse_stat(&whole.as_bytes()[..end]) {
                assert_eq!(
                    (stat.id, stat.parent),
                    (parsed.id, parsed.parent),
                    "cut at {end}"
                );
            }
        }
        assert_eq!(parse_stat(b""), Err(StatError::NoComm));
        assert_eq!(parse_stat(b"1 )("), Err(StatError::NoComm));
        assert_eq!(parse_stat(b"x (a) S 1"), Err(StatError::Field { field: 1 }));
    }
}
