//! Faulty stores: interrupted, changed and endless responses, no response, missing credentials.

use std::io::{BufRead as _, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use albacore_settings::Source;
use albacore_storage::StorageErrorKind;

use crate::{BYTES_MAX, Variables, fetch, model, refusal, storage, variables};

/// A request: its number, its path, and its headers in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    number: usize,
    pub(crate) path: String,
    headers: Vec<String>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns the first requested byte.
    pub(crate) fn range_start(&self) -> usize {
        let range = self.header("range").unwrap_or("bytes=0-");
        let range_start = range.trim_start_matches("bytes=").split('-').next();
        range_start.unwrap().parse().unwrap()
    }
}

pub(crate) type Handler = fn(&Request, &mut TcpStream) -> std::io::Result<()>;

/// Serves on a free port until the test ends; records the requests.
pub(crate) fn serve(handler: Handler) -> (SocketAddr, Arc<Mutex<Vec<Request>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let count = AtomicUsize::new(0);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let recorded = Arc::clone(&recorded);
            // A disconnected client ends its thread.
            std::thread::spawn(move || converse(stream, number, handler, &recorded).is_ok());
        }
    });
    (address, requests)
}

fn converse(
    mut stream: TcpStream,
    number: usize,
    handler: Handler,
    recorded: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request_line = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        headers.push(line.to_lowercase());
    }
    let path = request_line
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let request = Request {
        number,
        path,
        headers,
    };
    recorded.lock().unwrap().push(request.clone());
    handler(&request, &mut stream)
}

const HEAD: &str = "Last-Modified: Thu, 26 Nov 2026 08:00:00 GMT\r\nConnection: close";

/// Writes the head of a response with the requested bytes of `model(0)`; returns the first of them.
fn head(request: &Request, tag: &str, out: &mut TcpStream) -> std::io::Result<usize> {
    let (range_start, all) = (request.range_start(), model(0).len());
    let (status, range) = match request.header("range") {
        Some(_) => (
            "206 Partial Content",
            format!("Content-Range: bytes {range_start}-{}/{all}\r\n", all - 1),
        ),
        None => ("200 OK", String::new()),
    };
    let length = all - range_start;
    write!(
        out,
        "HTTP/1.1 {status}\r\nETag: \"{tag}\"\r\nContent-Length: {length}\r\n{range}{HEAD}\r\n\r\n"
    )?;
    Ok(range_start)
}

pub(crate) fn respond(out: &mut TcpStream, head: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(
        out,
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn keys(address: SocketAddr) -> Variables {
    variables(&[
        ("AWS_ENDPOINT_URL", &format!("http://{address}")),
        ("AWS_ACCESS_KEY_ID", "AKIDFAULTS"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-word"),
        ("AWS_SESSION_TOKEN", "a-session-token"),
    ])
}

#[test]
fn an_interrupted_download_is_resumed() {
    let (address, requests) = serve(|request, out| {
        let range_start = head(request, "one", out)?;
        let all = model(0);
        // The first two responses end after a million bytes.
        let end = match request.number {
            0 | 1 => range_start + 1_000_000,
            _ => all.len(),
        };
        out.write_all(&all[range_start..end])
    });
    let fetched = fetch("s3://bucket/key", &keys(address)).unwrap();
    assert_eq!(fetched.bytes, model(0));
    assert_eq!(fetched.version.as_deref(), Some("\"one\""));
    let requests = requests.lock().unwrap();
    let range_starts: Vec<usize> = requests.iter().map(Request::range_start).collect();
    assert_eq!(range_starts, [0, 1_000_000, 2_000_000]);
    assert!(requests.iter().all(|request| request.path == "/bucket/key"));
    let signed = requests[2].header("authorization").unwrap();
    assert!(signed.starts_with("aws4-hmac-sha256 credential=akidfaults/"));
}

#[test]
fn an_object_replaced_during_the_download_is_not_mixed_with_the_new_one() {
    let (address, _) = serve(|request, out| {
        let tag = ["one", "two"][request.number.min(1)];
        let range_start = head(request, tag, out)?;
        let all = model(request.number as u8);
        let end = if request.number == 0 {
            1_000_000
        } else {
            all.len()
        };
        out.write_all(&all[range_start..end])
    });
    let text = refusal("s3://bucket/key", &keys(address));
    assert!(text.contains("was replaced while it was read"), "{text}");
}

#[test]
fn retries_are_bounded() {
    for (handler, words) in [
        (
            (|_, out| respond(out, "503 Slow Down", "<Code>SlowDown</Code>")) as Handler,
            "the store has a problem: the store answered 503 SlowDown: it is retried",
        ),
        (
            |request, out| {
                let range_start = head(request, "one", out)?;
                out.write_all(&model(0)[range_start..range_start + 1000])
            },
            "cannot be fetched: 127.0.0.1: ",
        ),
        (|_, _| Ok(()), "cannot be fetched: 127.0.0.1: "),
    ] {
        let (address, requests) = serve(handler);
        let text = refusal("s3://bucket/key", &keys(address));
        assert!(text.contains(words), "{text}");
        assert_eq!(requests.lock().unwrap().len(), 4, "{text}");
    }
    let unreachable = keys("127.0.0.1:1".parse().unwrap());
    let text = refusal("s3://bucket/key", &unreachable);
    assert!(text.contains("cannot be fetched: 127.0.0.1: "), "{text}");
}

#[test]
fn endless_objects_and_responses_are_bounded() {
    let huge = |_: &Request, out: &mut TcpStream| {
        write!(
            out,
            "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: 99999999999\r\n{HEAD}\r\n\r\n"
        )?;
        loop {
            out.write_all(&[7; 1000])?;
        }
    };
    let (address, _) = serve(huge);
    let error = fetch("s3://bucket/key", &keys(address)).unwrap_err();
    let is_cut = matches!(
        error.problem,
        StorageErrorKind::TooLarge {
            bytes_max: BYTES_MAX
        }
    );
    assert!(is_cut, "{error}");
    for head in ["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found"] {
        let (address, _) = match head {
            "HTTP/1.1 200 OK" => serve(|_, out| endless("200 OK", out)),
            _ => serve(|_, out| endless("404 Not Found", out)),
        };
        let text = refusal("s3://bucket/key", &keys(address));
        assert!(
            text.contains("Content-Length") || text.contains("does not exist"),
            "{text}"
        );
    }
}

/// Writes a response without a length that does not end.
fn endless(status: &str, out: &mut TcpStream) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 {status}\r\nETag: \"one\"\r\n{HEAD}\r\n\r\n")?;
    loop {
        out.write_all(&[7; 1000])?;
    }
}

#[test]
fn response_bodies_are_not_repeated_in_messages() {
    let (address, _) = serve(|request, out| {
        let signed = request.header("x-amz-security-token").unwrap_or("none");
        let signature = request.header("authorization").unwrap_or("none");
        let body = format!("<Code>Odd code {signed}</Code><CanonicalRequest>{signature}");
        respond(out, "403 Forbidden", &body)
    });
    let text = refusal("s3://bucket/key", &keys(address));
    assert!(
        text.contains("the store answered 403: grant them"),
        "{text}"
    );
    assert!(!text.contains("akidfaults"), "{text}");
}

#[test]
fn a_redirect_is_not_followed_with_a_signature() {
    let (address, requests) = serve(|_, out| {
        let head = "301 Moved Permanently\r\nLocation: http://127.0.0.1:1/bucket/key";
        respond(out, head, "<Code>PermanentRedirect</Code>")
    });
    let text = refusal("s3://bucket/key", &keys(address));
    assert!(
        text.contains("is at another endpoint: the store answered 301 PermanentRedirect"),
        "{text}"
    );
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[test]
fn missing_and_rejected_credentials_are_reported() {
    let (address, _) = serve(|_, out| respond(out, "404 Not Found", ""));
    let endpoint = format!("http://{address}");
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&token, "the-token-of-the-pod").unwrap();
    let token = token.path().to_str().unwrap();
    for (url, variables, words) in [
        (
            "s3://bucket/key",
            variables(&[("AWS_METADATA_ENDPOINT", &endpoint)]),
            "needs credentials, and 127.0.0.1 gave none: it answered 404: set AWS_ACCESS_KEY_ID",
        ),
        (
            "s3://bucket/key",
            variables(&[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
                ("AWS_ROLE_ARN", "arn:aws:iam::1:role/models"),
                ("AWS_ENDPOINT_URL_STS", &endpoint),
            ]),
            "gave none: it answered 404",
        ),
        (
            "s3://bucket/key",
            variables(&[("AWS_ACCESS_KEY_ID", "AKIDALONE")]),
            "cannot be fetched with this environment: ",
        ),
        (
            "gs://bucket/key",
            variables(&[("GOOGLE_SERVICE_ACCOUNT_KEY", "no JSON but a secret")]),
            "cannot be fetched with this environment: ",
        ),
        (
            "az://bucket/key",
            variables(&[]),
            "AZURE_STORAGE_ACCOUNT_NAME",
        ),
    ] {
        let text = refusal(url, &variables);
        assert!(text.contains(words), "{url}: {text}");
    }
}

#[test]
fn an_azure_blob_is_requested_with_a_signature() {
    let (address, requests) = serve(|request, out| match request.number {
        0 => {
            head(request, "one", out)?;
            out.write_all(&model(0))
        }
        _ => respond(out, "404 Not Found", "<Code>ContainerNotFound</Code>"),
    });
    let variables = variables(&[
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "YSBzZWNyZXQgd29yZA=="),
        ("AZURE_STORAGE_ENDPOINT", &format!("http://{address}")),
    ]);
    assert_eq!(
        fetch("az://models/v1/a.ubj", &variables).unwrap().bytes,
        model(0)
    );
    let text = refusal("az://models/v1/a.ubj", &variables);
    assert!(
        text.contains("is in a bucket that does not exist"),
        "{text}"
    );
    let requests = requests.lock().unwrap();
    assert_eq!(requests[0].path, "/models/v1/a.ubj");
    let signed = requests[0].header("authorization").unwrap();
    assert!(signed.starts_with("sharedkey account:"), "{signed}");
}

#[test]
fn a_cancelled_transfer_ends_promptly() {
    let (address, _) = serve(|request, out| {
        head(request, "one", out)?;
        loop {
            out.write_all(&[7])?;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let start = Instant::now();
    let is_wanted = || start.elapsed() < Duration::from_millis(200);
    let source = Source::Url("s3://bucket/key".to_owned());
    let error = storage(&keys(address))
        .fetch(&source, None, &is_wanted)
        .unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Cancelled),
        "{error}"
    );
}
