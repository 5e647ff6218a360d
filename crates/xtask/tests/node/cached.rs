//! A model from a URL with a checksum, cached in a volume of the pod or of the node: containers and
//! pods start even if the store does not respond.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};

use crate::rig::{Rig, root};

/// User of the server's container.
const USER: u32 = 65_532;

/// A store in the network of the node that serves one file until `refuses` is set.
struct Store {
    address: String,
    served: Arc<AtomicUsize>,
    refuses: Arc<AtomicBool>,
}

impl Store {
    fn start(rig: &Rig, file: Vec<u8>) -> Self {
        let host = rig.node.address();
        let listener = rig.node.within(|| TcpListener::bind((host, 0)));
        let listener = listener.unwrap().unwrap();
        let store = Self {
            address: listener.local_addr().unwrap().to_string(),
            served: Arc::default(),
            refuses: Arc::default(),
        };
        let (served, refuses) = (store.served.clone(), store.refuses.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Closes the connection at once, like a machine that is up but whose store is not
                // running.
                if !refuses.load(Ordering::SeqCst) && answer(stream, &file).is_ok() {
                    served.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        store
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request and sends `file`.
fn answer(mut stream: TcpStream, file: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    let length = file.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(file)
}

/// The deployment with `volume` mounted at its cache directory.
fn deployment(store: &Store, sum: &str, volume: &str) -> String {
    format!(
        "\
apiVersion: albacore.dev/v1beta1
kind: InferenceDeployment
metadata: {{name: cached}}
spec:
  workers: 1
  threads: 1
  models:
  - {{name: fraud, uri: \"http://{}/fraud.ubj#sha256={sum}\"}}
  template:
    spec:
      containers:
      - name: server
        env: [{{name: ALBACORE_MODEL_CACHE, value: /cache}}]
        volumeMounts: [{{name: cache, mountPath: /cache}}]
      volumes:
      - {{name: cache, {volume}}}
",
        store.address
    )
}

const SELECTOR: &str = "albacore.dev/deployment=cached";

fn wait_until_ready(rig: &Rig) {
    // Before that, the Deployment may not exist yet or may be outdated.
    rig.wait_until("a status of this edit", || {
        let path = "jsonpath={.metadata.generation} {.status.observedGeneration}";
        let shown = rig.kubectl(&["get", "infd/cached", "-o", path]);
        let (generation, observed) = shown.split_once(' ')?;
        (generation == observed).then_some(())
    });
    rig.kubectl(&["rollout", "status", "deployment/cached", "--timeout=180s"]);
    rig.kubectl(&[
        "wait",
        "infd/cached",
        "--for=condition=Ready",
        "--timeout=120s",
    ]);
}

fn restarts(rig: &Rig) -> String {
    let path = "jsonpath={.items[0].status.containerStatuses[0].restartCount}";
    rig.kubectl(&["get", "pods", "-l", SELECTOR, "-o", path])
}

pub(crate) fn outlives_the_store(rig: &mut Rig) {
    let file = std::fs::read(root().join("examples/fraud.ubj")).unwrap();
    let digits = Sha256::digest(&file);
    let sum: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    let store = Store::start(rig, file);
    rig.apply("cached", &deployment(&store, &sum, "emptyDir: {}"));
    wait_until_ready(rig);
    let first = store.served();
    assert!(first > 0, "the store sent the model");

    store.refuses.store(true, Ordering::SeqCst);
    let uid = rig.uid("default", SELECTOR).unwrap();
    rig.kill(crate::kernel::find("albacore-server", &uid).unwrap());
    rig.wait_until("a container that started again", || {
        (restarts(rig) != "0").then_some(())
    });
    wait_until_ready(rig);

    // A directory of the node, which is a local directory, because the node's files are local.
    let folder = rig.folder().join("models");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(&folder, Some(USER), Some(USER)).unwrap();
    store.refuses.store(false, Ordering::SeqCst);
    let volume = format!("hostPath: {{path: {}, type: Directory}}", folder.display());
    rig.apply("cached", &deployment(&store, &sum, &volume));
    wait_until_ready(rig);
    let second = store.served();
    assert!(second > first, "the folder of the node was empty");

    store.refuses.store(true, Ordering::SeqCst);
    let uid = rig.uid("default", SELECTOR).unwrap();
    rig.kubectl(&["delete", "pods", "-l", SELECTOR, "--wait=false"]);
    rig.wait_until("another pod", || {
        rig.uid("default", SELECTOR).filter(|new| *new != uid)
    });
    wait_until_ready(rig);
    assert_eq!(store.served(), second, "nothing was sent again");
    rig.kubectl(&[
        "delete",
        "infd/cached",
        "--cascade=foreground",
        "--timeout=120s",
    ]);
}
