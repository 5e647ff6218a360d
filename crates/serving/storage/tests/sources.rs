//! Fetches from real files and real servers on the loopback interface, and the error messages.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use albacore_settings::{Digest, Source};
use albacore_storage::{Fetched, Storage, StorageError, StorageErrorKind, sha256};

const MODEL: &[u8] = b"the bytes of a model";

/// Handles one request; receives its path and the output stream.
type Handler = fn(&str, &mut dyn Write) -> std::io::Result<()>;

/// Serves on a free port until the test ends; also returns the number of requests.
fn serve(handler: Handler) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let request_count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let request_count = Arc::clone(&request_count);
            // A disconnected client ends its thread.
            std::thread::spawn(move || converse(stream, handler, &request_count).is_ok());
        }
    });
    (address, requests)
}

fn converse(
    stream: TcpStream,
    handler: Handler,
    request_count: &AtomicUsize,
) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let path = request(stream)?;
    request_count.fetch_add(1, Ordering::Relaxed);
    handler(&path, &mut writer)
}

fn request(stream: impl Read) -> std::io::Result<String> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    Ok(first.split(' ').nth(1).unwrap_or_default().to_owned())
}

fn reply(out: &mut dyn Write, head: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(
        out,
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    out.write_all(body)
}

fn store(path: &str, out: &mut dyn Write) -> std::io::Result<()> {
    match path {
        "/model" => reply(out, "200 OK", MODEL),
        "/moved" => reply(out, "302 Found\r\nLocation: /model", b""),
        "/loop" => reply(out, "302 Found\r\nLocation: /loop", b""),
        "/nowhere" => reply(out, "302 Found", b""),
        "/busy" => reply(out, "503 Service Unavailable", b""),
        "/secret" => reply(out, "403 Forbidden", b""),
        "/part" => reply(out, "206 Partial Content", b"the"),
        "/cut" => write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
        "/garbage" => write!(out, "this is not HTTP\r\n\r\n"),
        "/large" => reply(out, "200 OK", &[7; 5000]),
        "/endless" => {
            write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                out.write_all(&[7; 1000])?;
            }
        }
        "/dripping" => {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
            loop {
                out.write_all(&[7])?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        _ => reply(out, "404 Not Found", b""),
    }
}

fn fetch(source: &Source, expected: Option<Digest>) -> Result<Fetched, StorageError> {
    Storage::new(4096, None)?.fetch(source, expected, &|| true)
}

fn url(address: SocketAddr, path: &str) -> Source {
    Source::Url(format!("http://{address}{path}"))
}

#[test]
fn files_and_urls_are_fetched_and_checked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, MODEL).unwrap();
    let (address, _) = serve(store);
    for source in [
        Source::Path(file.path().to_str().unwrap().to_owned()),
        url(address, "/model"),
        url(address, "/moved"),
    ] {
        let digest = sha256(MODEL);
        let fetched = fetch(&source, Some(digest)).unwrap();
        assert_eq!((fetched.bytes.as_slice(), fetched.sha256), (MODEL, digest));
        assert_eq!(fetch(&source, None).unwrap().sha256, digest);
        let error = fetch(&source, Some(sha256(b"other"))).unwrap_err();
        assert!(matches!(error.problem, StorageErrorKind::Digest { found, .. } if found == digest));
        assert!(error.to_string().contains(&digest.to_string()), "{error}");
    }
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc").to_string(), known);
}

#[test]
fn errors_of_a_server_are_reported_with_a_remedy() {
    let (address, requests) = serve(store);
    for (path, words) in [
        ("/absent", "answered 404: file not found; correct the URL"),
        ("/secret", "answered 403: the file is not public"),
        ("/busy", "answered 503: the server has a problem"),
        ("/part", "answered 206: only 200"),
        ("/nowhere", "missing a location header"),
        (
            "/loop",
            "redirects more than 5 times: name the last URL itself",
        ),
        ("/cut", "cannot be fetched:"),
        ("/garbage", "cannot be fetched:"),
        ("/large", "has more than 4096 bytes"),
        ("/endless", "has more than 4096 bytes"),
    ] {
        let text = fetch(&url(address, path), None).unwrap_err().to_string();
        assert!(
            text.contains(words) && text.contains(path),
            "{path}: {text}"
        );
    }
    assert!(
        requests.load(Ordering::Relaxed) < 30,
        "a loop of redirects ends"
    );
    let closed = url("127.0.0.1:1".parse().unwrap(), "/model");
    let unknown_host = Source::Url("http://name.invalid/model".to_owned());
    for source in [closed, unknown_host] {
        let text = fetch(&source, None).unwrap_err().to_string();
        assert!(text.contains("cannot be fetched"), "{text}");
    }
}

#[test]
fn a_folder_with_one_model_file_is_that_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.bst"), MODEL).unwrap();
    let source = Source::Path(folder.path().to_str().unwrap().to_owned());
    let fetched = fetch(&source, Some(sha256(MODEL))).unwrap();
    assert_eq!(fetched.bytes, MODEL);
}

#[test]
fn ambiguous_folders_and_pipes_are_rejected_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| Source::Path(folder.path().join(name).to_str().unwrap().to_owned());
    let large = folder.path().join("large");
    std::fs::write(&large, [0; 5000]).unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let several = folder.path().join("several");
    std::fs::create_dir(&several).unwrap();
    for name in ["a.ubj", "b.ubj"] {
        std::fs::write(several.join(name), MODEL).unwrap();
    }
    let fifo = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status();
    assert!(fifo.unwrap().success());
    for (name, words) in [
        ("absent", "cannot be read: No such file"),
        (
            "several",
            "has several model files, a.ubj and b.ubj among them",
        ),
        ("empty", "has no model file"),
        ("pipe", "is not a file"),
        ("large", "has more than 4096 bytes"),
    ] {
        let text = fetch(&path(name), None).unwrap_err().to_string();
        assert!(text.contains(words), "{name}: {text}");
    }
}

#[test]
fn a_cancelled_transfer_ends_promptly() {
    let (address, _) = serve(store);
    let start = Instant::now();
    let storage = Storage::new(1 << 20, None).unwrap();
    let is_wanted = || start.elapsed() < Duration::from_millis(200);
    let error = storage
        .fetch(&url(address, "/dripping"), None, &is_wanted)
        .unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Cancelled),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// Starts an https server; also returns the file with its certificate.
fn serve_tls(folder: &std::path::Path) -> (SocketAddr, std::path::PathBuf) {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let roots = folder.join("roots.pem");
    std::fs::write(&roots, signed.cert.pem()).unwrap();
    let key = signed.signing_key.serialize_der().try_into().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tls = rustls::StreamOwned::new(connection, stream);
            let Ok(path) = request(&mut tls) else {
                continue;
            };
            let written = match path.as_str() {
                "/down" => reply(
                    &mut tls,
                    "302 Found\r\nLocation: http://localhost/model",
                    b"",
                ),
                _ => reply(&mut tls, "200 OK", MODEL),
            };
            tls.conn.send_close_notify();
            // The client may have disconnected.
            let _ = written.and_then(|()| tls.flush());
        }
    });
    (address, roots)
}

#[test]
fn https_trusts_only_the_given_roots_and_never_falls_back_to_http() {
    let folder = tempfile::tempdir().unwrap();
    let (address, roots) = serve_tls(folder.path());
    let url = |path: &str| Source::Url(format!("https://localhost:{}{path}", address.port()));
    let storage = Storage::new(4096, Some(&roots)).unwrap();
    let fetched = storage.fetch(&url("/model"), None, &|| true).unwrap();
    assert_eq!(fetched.bytes, MODEL);
    let error = storage.fetch(&url("/down"), None, &|| true).unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Downgrade),
        "{error}"
    );
    let error = fetch(&url("/model"), None).unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Network(_)),
        "{error}"
    );
    std::fs::write(&roots, "nothing").unwrap();
    let error = Storage::new(4096, Some(&roots)).unwrap_err().to_string();
    assert!(
        error.contains("roots.pem has no usable CA certificates"),
        "{error}"
    );
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    // Runs this test in a separate process, because all threads share the environment.
    if std::env::var_os("ALBACORE_TEST_PROXY").is_some() {
        let (address, _) = serve(store);
        assert_eq!(fetch(&url(address, "/model"), None).unwrap().bytes, MODEL);
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "proxies_of_the_environment_are_not_used"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        again.env(name, "http://127.0.0.1:1");
    }
    for name in ["no_proxy", "NO_PROXY"] {
        again.env_remove(name);
    }
    let output = again.env("ALBACORE_TEST_PROXY", "1").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
