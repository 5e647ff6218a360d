//! A user's own Deployment, placed by an annotation that is added with `kubectl patch`.

use std::collections::BTreeSet;

use crate::rig::Rig;
use crate::{gunicorn, kernel};

/// The workers of gunicorn in the Deployment's pod.
fn workers(rig: &Rig) -> BTreeSet<i32> {
    let Some(uid) = rig.uid("default", "app=web") else {
        return BTreeSet::new();
    };
    let arbiter = kernel::find("gunicorn", &uid).or_else(|| kernel::find("python3.11", &uid));
    arbiter.map_or_else(BTreeSet::new, kernel::children)
}

/// Number of worker threads that are pinned to one CPU.
fn pinned(rig: &Rig) -> usize {
    let masks = kernel::masks(&workers(rig));
    masks.values().filter(|mask| !mask.contains('-')).count()
}

pub(crate) fn place_by_annotation(rig: &mut Rig) {
    gunicorn::deploy_plain(rig);
    rig.wait_until("two workers", || (workers(rig).len() == 2).then_some(()));
    assert_eq!(pinned(rig), 0, "nobody opted in");
    let before = rig.uid("default", "app=web");
    let patch =
        r#"{"spec": {"template": {"metadata": {"annotations": {"albacore.dev/place": "{}"}}}}}"#;
    rig.kubectl(&["patch", "deployment/web", "--patch", patch]);
    rig.kubectl(&["rollout", "status", "deployment/web", "--timeout=180s"]);
    rig.wait_until("the pods after the rollout are placed", || {
        let is_new = rig.uid("default", "app=web") != before;
        (is_new && pinned(rig) >= 4).then_some(())
    });
    let name = rig.kubectl(&["get", "pods", "-l", "app=web", "-o", "name"]);
    let shown = rig.wait_until("a status that says so", || {
        let shown = rig.albacore(&["status", name.trim()]);
        shown.contains("threads 4/4 verified").then_some(shown)
    });
    assert!(
        shown.contains("2 x 2 scatter, container app (workers counted)"),
        "{shown}"
    );
    let victim = *workers(rig).first().unwrap();
    rig.kill(victim);
    rig.wait_until("another worker, placed", || {
        (!workers(rig).contains(&victim) && pinned(rig) >= 4).then_some(())
    });
    rig.kubectl(&["annotate", name.trim(), "albacore.dev/place-"]);
    rig.wait_until("masks that are given back", || {
        (pinned(rig) == 0).then_some(())
    });
    rig.kubectl(&[
        "delete",
        "deployment/web",
        "--cascade=foreground",
        "--timeout=120s",
    ]);
}
