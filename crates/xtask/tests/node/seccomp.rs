//! System calls rejected by the seccomp profile: a program makes the calls that an intruder would
//! need, in a pod with the profile and in one without. The kubelet and its runtime load the
//! profile, as for the agent.

use std::collections::BTreeMap;

use albacore_testbed::Image;

use crate::rig::Rig;

const REFERENCE: &str = "test.albacore.dev/perl:1";

/// ENOSYS, the error returned by the profile.
const REFUSED: i32 = 38;

/// System calls by name and by their number on this architecture: to listen, to access other
/// processes, to create namespaces and mounts, to load kernel code, to change existing files, to
/// change the user, to move memory, to execute other programs.
#[cfg(target_arch = "x86_64")]
const INTRUDERS: [(&str, i64); 44] = [
    ("listen", 50),
    ("accept", 43),
    ("accept4", 288),
    ("ptrace", 101),
    ("process_vm_readv", 310),
    ("process_vm_writev", 311),
    ("pidfd_getfd", 438),
    ("pidfd_send_signal", 424),
    ("process_madvise", 440),
    ("kcmp", 312),
    ("unshare", 272),
    ("setns", 308),
    ("clone3", 435),
    ("mount", 165),
    ("umount2", 166),
    ("pivot_root", 155),
    ("chroot", 161),
    ("open_tree", 428),
    ("move_mount", 429),
    ("fsopen", 430),
    ("open_by_handle_at", 304),
    ("bpf", 321),
    ("perf_event_open", 298),
    ("userfaultfd", 323),
    ("io_uring_setup", 425),
    ("init_module", 175),
    ("finit_module", 313),
    ("kexec_load", 246),
    ("keyctl", 250),
    ("unlink", 87),
    ("rename", 82),
    ("chmod", 90),
    ("chown", 92),
    ("truncate", 76),
    ("symlink", 88),
    ("setuid", 105),
    ("capset", 126),
    ("setpriority", 141),
    ("sched_setscheduler", 144),
    ("mbind", 237),
    ("migrate_pages", 256),
    ("move_pages", 279),
    ("memfd_create", 319),
    ("execveat", 322),
];

/// The same for the other architecture of the profile.
#[cfg(target_arch = "aarch64")]
const INTRUDERS: [(&str, i64); 16] = [
    ("listen", 201),
    ("accept4", 242),
    ("ptrace", 117),
    ("process_vm_writev", 271),
    ("pidfd_getfd", 438),
    ("unshare", 97),
    ("setns", 268),
    ("clone3", 435),
    ("mount", 40),
    ("bpf", 280),
    ("perf_event_open", 241),
    ("userfaultfd", 282),
    ("init_module", 105),
    ("setuid", 146),
    ("mbind", 235),
    ("execveat", 281),
];

/// Numbers of `sched_setaffinity` and of `clone`, which is used to request a user namespace.
#[cfg(target_arch = "x86_64")]
const ALLOWED: (i64, i64) = (203, 56);
#[cfg(target_arch = "aarch64")]
const ALLOWED: (i64, i64) = (122, 220);

const IN_A_NAMESPACE: i64 = 0x1000_0000 | 17;

/// Makes every call with arguments that no kernel accepts, and prints the result of each.
fn program() -> String {
    let asked = INTRUDERS.map(|(name, number)| format!("ask('{name}', {number}, -1);\n"));
    let (affinity, clone) = ALLOWED;
    format!(
        "sub ask {{ my ($name, $number, $first) = @_; $! = 0;
           my $r = syscall($number, $first, -1, -1, -1, -1, -1);
           print \"$name \", ($r == -1 ? $!+0 : 0), \"\\n\"; }}
         $| = 1; {}
         ask('sched_setaffinity', {affinity}, -1);
         my $r = syscall({clone}, {IN_A_NAMESPACE}, 0, 0, 0, 0); exit 0 if $r == 0;
         print 'namespace ', ($r == -1 ? $!+0 : 0), \"\\n\";",
        asked.concat()
    )
}

/// The results by call in a pod with this profile.
fn answers(rig: &Rig, name: &str, profile: &str) -> BTreeMap<String, i32> {
    let program = program().replace('\n', " ");
    let pod = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  containers:
  - name: intruder
    image: {REFERENCE}
    imagePullPolicy: Never
    args: [-e, {program:?}]
    # As the agent's: only then does runc load the profile last, after calls of its own that the profile refuses.
    securityContext:
      allowPrivilegeEscalation: false
      seccompProfile: {profile}
"
    );
    rig.apply(name, &pod);
    rig.wait_until(&format!("the end of {name}"), || {
        let phase = rig.kubectl(&["get", "pod", name, "-o", "jsonpath={.status.phase}"]);
        ["Succeeded", "Failed"]
            .contains(&phase.as_str())
            .then_some(())
    });
    let said = rig.kubectl(&["logs", name]);
    rig.kubectl(&["delete", "pod", name, "--wait=false"]);
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(call, errno)| Some((call.to_owned(), errno.parse().ok()?)))
        .collect()
}

pub(crate) fn refuses(rig: &Rig) {
    let archive = rig.folder().join("perl.tar");
    let image = Image {
        reference: REFERENCE.into(),
        program: "/usr/bin/perl".into(),
        ..Image::default()
    };
    image.write(&archive).unwrap();
    rig.node.import(&archive).unwrap();
    let profile = "{type: Localhost, localhostProfile: albacore/agent.json}";
    let (with, without) = (
        answers(rig, "profiled", profile),
        answers(rig, "unprofiled", "{type: Unconfined}"),
    );
    for (call, _) in INTRUDERS {
        assert_eq!(with.get(call), Some(&REFUSED), "{call}: {with:?}");
    }
    assert_eq!(with.get("namespace"), Some(&REFUSED), "{with:?}");
    assert_ne!(with["sched_setaffinity"], REFUSED, "{with:?}");
    // The calls are rejected by the profile: without it the kernel supports nearly all of them.
    let known = INTRUDERS
        .iter()
        .filter(|(call, _)| without[*call] != REFUSED);
    let known = known.count();
    assert!(known * 10 >= INTRUDERS.len() * 8, "{known}: {without:?}");
    println!(
        "         {} calls refused, {known} of them known without it",
        with.len() - 1
    );
}
