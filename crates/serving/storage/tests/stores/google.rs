//! fake-gcs-server: responds like Google Cloud Storage, without access control.

use crate::servers::{Server, free_ports, programs};
use crate::{fetch, model, refusal, variables};

#[test]
fn an_object_of_google_cloud_storage_is_fetched() {
    let [port] = free_ports();
    let mut server = Server::start(&programs()[1], |folder| {
        let bucket = folder.join("data/models/v1");
        std::fs::create_dir_all(&bucket).unwrap();
        std::fs::write(bucket.join("fraud.ubj"), model(4)).unwrap();
        let data = folder.join("data");
        let words = format!(
            "-scheme http -host 127.0.0.1 -port {port} -public-host 127.0.0.1:{port} -backend memory -data {}",
            data.display()
        );
        words.split(' ').map(str::to_owned).collect()
    });
    let endpoint = format!("http://127.0.0.1:{port}");
    let variables = variables(&[
        ("GOOGLE_BASE_URL", &endpoint),
        ("GOOGLE_SKIP_SIGNATURE", "true"),
    ]);
    server.wait_until(|| ureq::get(format!("{endpoint}/storage/v1/b")).call().is_ok());
    let fetched = fetch("gs://models/v1/fraud.ubj", &variables).unwrap();
    assert_eq!(fetched.bytes, model(4));
    assert!(fetched.version.is_some());
    let from_folder = fetch("gs://models/v1/", &variables).unwrap();
    assert_eq!(from_folder.sha256, fetched.sha256);
    let text = refusal("gs://models/absent", &variables);
    assert!(
        text.contains("does not exist: the store answered 404"),
        "{text}"
    );
}
