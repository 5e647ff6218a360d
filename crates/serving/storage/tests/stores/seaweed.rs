//! SeaweedFS, a store with the S3 interface that checks signatures and permissions.

#![allow(dead_code)] // each test program uses a part

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::servers::{Server, free_ports, programs};

/// Access key and secret key of a user with read and list permission on the bucket `models`.
pub(crate) const READER: (&str, &str) = ("AKIDREADER", "word-of-the-reader");

/// Users and their permissions.
const IDENTITIES: &str = r#"{"identities": [
    {"name": "reader", "actions": ["Read:models", "List:models"],
     "credentials": [{"accessKey": "AKIDREADER", "secretKey": "word-of-the-reader"}]},
    {"name": "other", "actions": ["Read:elsewhere"],
     "credentials": [{"accessKey": "AKIDOTHER", "secretKey": "word-of-the-other"}]}
]}"#;

/// A store with a bucket `models`.
pub(crate) struct Seaweed {
    server: Server,
    pub(crate) endpoint: String,
    /// Port that accepts writes without signatures.
    filer: u16,
}

impl Seaweed {
    pub(crate) fn start() -> Self {
        let [
            master,
            master_grpc,
            volume,
            volume_grpc,
            filer,
            filer_grpc,
            s3,
            s3_grpc,
        ] = free_ports();
        let mut server = Server::start(&programs()[0], |folder| {
            std::fs::write(folder.join("identities"), IDENTITIES).unwrap();
            let ports = [
                ("master.port", master),
                ("master.port.grpc", master_grpc),
                ("volume.port", volume),
                ("volume.port.grpc", volume_grpc),
                ("filer.port", filer),
                ("filer.port.grpc", filer_grpc),
                ("s3.port", s3),
                ("s3.port.grpc", s3_grpc),
                ("s3.port.iceberg", 0),
                ("s3.port.lance", 0),
                ("volume.max", 2),
            ];
            let ports = ports.iter().map(|(name, port)| format!("-{name}={port}"));
            let words = "server -dir=. -ip=127.0.0.1 -ip.bind=127.0.0.1 -s3 -s3.config=identities";
            words.split(' ').map(str::to_owned).chain(ports).collect()
        });
        let file = "/buckets/models/ready";
        server.wait_until(|| ask(filer, "PUT", file, b"yes") == Some(201));
        server.wait_until(|| ask(s3, "GET", "/models/ready", b"") == Some(403));
        Self {
            endpoint: format!("http://127.0.0.1:{s3}"),
            filer,
            server,
        }
    }

    /// Writes an object.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        assert_eq!(self.ask("PUT", key, bytes), Some(201));
    }

    /// Removes an object.
    pub(crate) fn delete(&self, key: &str) {
        assert_eq!(self.ask("DELETE", key, b""), Some(204));
    }

    fn ask(&self, method: &str, key: &str, bytes: &[u8]) -> Option<u16> {
        ask(self.filer, method, &format!("/buckets/models/{key}"), bytes)
    }
}

/// Sends an unsigned request; returns the status of the response, if any.
fn ask(port: u16, method: &str, path: &str, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let length = bytes.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: store\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(bytes).ok()?;
    let mut response = String::new();
    stream.take(1000).read_to_string(&mut response).ok()?;
    response.split(' ').nth(1)?.parse().ok()
}
