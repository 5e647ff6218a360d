"""A pre-fork server that serves nothing, for tests of placement: a master, ALBACORE_WORKERS workers of ALBACORE_THREADS
threads. Environment: LINGER, seconds from SIGTERM to the end of the workers; SELF_PIN=1, one thread of each worker
insists on another cpu than the one it is given; STUBBORN=1, SIGTERM is ignored."""
import os
import signal
import threading
import time

WORKERS = int(os.environ["ALBACORE_WORKERS"])
THREADS = int(os.environ["ALBACORE_THREADS"])
LINGER = float(os.environ.get("LINGER", "0"))
ALL_CPUS = os.sched_getaffinity(0)


def insist():
    """Waits for a narrower mask, then repeatedly sets its complement."""
    while os.sched_getaffinity(0) == ALL_CPUS:
        time.sleep(0.02)
    home = ALL_CPUS - os.sched_getaffinity(0)
    while True:
        if os.sched_getaffinity(0) != home:
            os.sched_setaffinity(0, home)
        time.sleep(0.02)


def work():
    for rank in range(1, THREADS):
        is_insisting = rank == 1 and os.environ.get("SELF_PIN") == "1"
        threading.Thread(target=insist if is_insisting else threading.Event().wait, daemon=True).start()
    while True:
        time.sleep(3600)


workers = []
for _ in range(WORKERS):
    pid = os.fork()
    if pid == 0:
        work()
    workers.append(pid)


def end(_signal, _frame):
    time.sleep(LINGER)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("STUBBORN") == "1" else end)
print("serving nothing", flush=True)
while True:
    time.sleep(3600)
