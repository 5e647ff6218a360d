//! Writes objects to etcd through its JSON gateway.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// Objects per transaction: etcd accepts 128 operations and 1.5 MiB.
const PUTS_MAX: usize = 50;

pub(crate) struct Etcd {
    pub(crate) address: String,
}

impl Etcd {
    /// Stores objects under their keys below `/registry`.
    pub(crate) fn put(&self, objects: impl Iterator<Item = (String, Value)>) {
        let put = objects.map(|(key, object)| {
            let bytes = |text: String| ByteString(text.into_bytes());
            let key = bytes(format!("/registry/{key}"));
            json!({"requestPut": {"key": key, "value": bytes(object.to_string())}})
        });
        let mut put = put.peekable();
        while put.peek().is_some() {
            let success: Vec<Value> = put.by_ref().take(PUTS_MAX).collect();
            self.post("/v3/kv/txn", &json!({ "success": success }).to_string());
        }
    }

    fn post(&self, path: &str, body: &str) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
