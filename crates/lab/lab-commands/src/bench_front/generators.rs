//! The load generators wrk and h2load, one thread each.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use albacore_command::Failure;
use albacore_load::Request;

/// Result of a run of a generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Answers per second.
    pub(super) rate: f64,
    pub(super) p50_micros: f64,
}

/// A request, with the files from which generators read it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    request: Request,
    body: PathBuf,
    script: PathBuf,
    log: PathBuf,
}

impl Target {
    /// # Errors
    /// The files cannot be written.
    pub(super) fn new(folder: &Path, request: Request) -> Result<Self, Failure> {
        let write = |path: &Path, text: &[u8]| {
            std::fs::write(path, text).map_err(|e| Failure::file(path, &e))
        };
        std::fs::create_dir(folder).map_err(|e| Failure::file(folder, &e))?;
        let (body, script) = (folder.join("body"), folder.join("script.lua"));
        let mut lua = "wrk.method = 'POST'\n".to_owned();
        for (name, value) in &request.headers {
            // Writing to a string does not fail.
            let _ = writeln!(lua, "wrk.headers['{name}'] = '{value}'");
        }
        let _ = writeln!(
            lua,
            "wrk.body = io.open('{}', 'rb'):read('*a')",
            body.display()
        );
        write(&body, &request.body)?;
        write(&script, lua.as_bytes())?;
        Ok(Self {
            request,
            body,
            script,
            log: folder.join("log"),
        })
    }

    /// The same request to another server.
    pub(super) fn at(&self, address: SocketAddr) -> Self {
        let mut target = self.clone();
        target.request.address = address;
        target
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.request.address, self.request.path)
    }
}

/// Error for a missing program of the distribution.
pub(super) fn not_started(program: &str, error: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "cannot start {program} ({error}): install it, for example by `apt-get install nginx \
         wrk nghttp2-client`"
    ))
}

fn output_of(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| not_started(&program, &e))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::Failed(format!("{program} failed: {text}{error}")))
}

fn unread(program: &str, text: &str) -> Failure {
    Failure::Failed(format!("cannot parse the output of {program}: {text}"))
}

fn h2load(target: &Target, is_http1: bool) -> Command {
    let mut command = Command::new("h2load");
    command.args(is_http1.then_some("--h1"));
    command.arg("--data").arg(&target.body);
    for (name, value) in &target.request.headers {
        command.arg("--header").arg(format!("{name}: {value}"));
    }
    command.arg(target.url());
    command
}

/// Size of the body of a successful reply.
///
/// # Errors
/// There is no successful reply.
pub(super) fn reply_bytes(target: &Target, is_http1: bool) -> Result<usize, Failure> {
    let text = output_of(h2load(target, is_http1).args(["--requests", "1", "--clients", "1"]))?;
    let bytes = data_bytes(&text).filter(|&bytes| bytes > 0);
    let is_good = text.contains("1 succeeded") && text.contains(" 1 2xx");
    match bytes {
        Some(bytes) if is_good => Ok(bytes),
        _ => Err(Failure::Failed(format!("the request failed: {text}"))),
    }
}

/// Parses the exact number in `traffic: 196B (196) total, 81B (81) headers (...), 82B (82) data`.
fn data_bytes(text: &str) -> Option<usize> {
    let (before, _) = text.split_once(") data")?;
    before.rsplit_once('(')?.1.parse().ok()
}

/// # Errors
/// wrk is missing or fails, or a response is an error.
pub(super) fn run_wrk(
    target: &Target,
    connections: u32,
    length: Duration,
) -> Result<Measured, Failure> {
    let text = output_of(
        Command::new("wrk")
            .args(["--latency", "--threads", "1"])
            .args(["--connections", &connections.to_string()])
            .args(["--duration", &format!("{}s", length.as_secs())])
            .arg("--script")
            .arg(&target.script)
            .arg(target.url()),
    )?;
    if text.contains("Non-2xx") {
        return Err(Failure::Failed(format!(
            "some responses are errors: {text}"
        )));
    }
    wrk_figures(&text).ok_or_else(|| unread("wrk", &text))
}

fn wrk_figures(text: &str) -> Option<Measured> {
    // Not the share within one standard deviation, which may be 88.50%.
    let (_, after) = text.split_once(" 50% ")?;
    let (_, rate) = text.split_once("Requests/sec:")?;
    Some(Measured {
        rate: rate.split_whitespace().next()?.parse().ok()?,
        p50_micros: micros(after.split_whitespace().next()?)?,
    })
}

/// Parses `12.30us`, `1.20ms` or `3.00s`.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (number, scale) = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    Some(number.parse::<f64>().ok()? * scale)
}

/// Sends one request at a time per connection.
///
/// # Errors
/// h2load is missing or fails, or a response is an error.
pub(super) fn run_h2load(
    target: &Target,
    connections: u32,
    length: Duration,
) -> Result<Measured, Failure> {
    // h2load appends to its log.
    if target.log.exists() {
        std::fs::remove_file(&target.log).map_err(|e| Failure::file(&target.log, &e))?;
    }
    let text = output_of(
        h2load(target, false)
            .args(["--clients", &connections.to_string()])
            .args(["--duration", &length.as_secs().to_string()])
            .arg("--log-file")
            .arg(&target.log),
    )?;
    if !text.contains(" 0 failed, 0 errored") {
        return Err(Failure::Failed(format!(
            "some responses are errors: {text}"
        )));
    }
    let log = std::fs::read_to_string(&target.log).map_err(|e| Failure::file(&target.log, &e))?;
    let rate = h2load_rate(&text).ok_or_else(|| unread("h2load", &text))?;
    let p50_micros = logged_p50(&log).ok_or_else(|| unread("h2load", &text))?;
    Ok(Measured { rate, p50_micros })
}

/// Parses the rate in `finished in 1.00s, 12345.67 req/s, 1.2MB/s`.
fn h2load_rate(text: &str) -> Option<f64> {
    let (before, _) = text.split_once(" req/s")?;
    before.rsplit_once(' ')?.1.parse().ok()
}

/// Median of the third column.
fn logged_p50(log: &str) -> Option<f64> {
    let third = |line: &str| line.split('\t').nth(2)?.trim().parse().ok();
    let mut micros: Vec<u64> = log.lines().filter_map(third).collect();
    micros.sort_unstable();
    micros.get(micros.len() / 2).map(|&micros| micros as f64)
}

#[cfg(test)]
mod tests;
