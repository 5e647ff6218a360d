"""How long servers take to start, the memory that they take, and the size of their files, side by side."""
import pathlib
import statistics
import subprocess
import tempfile

# Enough to trigger everything that a server loads at its first requests.
WARM_RATE = "50"


def files(name, args, peers):
    """Size in bytes of the files of a server, uncompressed, without Python and its standard library."""
    if name == "albacore":
        with tempfile.NamedTemporaryFile() as stripped:  # as in its image
            subprocess.run(["strip", "-o", stripped.name, f"{args.bin}/albacore-server"], check=True)
            return pathlib.Path(stripped.name).stat().st_size
    folder = peers(name) / "lib"
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def measure(name, start, args, rounds):
    """Seconds until ready, and bytes of memory when ready and after requests: medians of `rounds` starts."""
    found = []
    for _ in range(rounds):
        with start(name) as server:
            ready = server.memory()
            said = server.ask("1", "--rate", WARM_RATE)
            if "error" in said:
                raise SystemExit(f"{name} answers nothing: {said['error']}")
            found.append((server.start_seconds, ready, server.memory()))
    return [statistics.median(column) for column in zip(*found)]


def table(start, args, peers):
    """Prints a row for each server that `start` can start."""
    print("| server | start s | memory MiB: ready, after requests | files MiB |")
    print("|---|---|---|---|")
    for name in args.only:
        seconds, ready, after = measure(name, start, args, args.rounds)
        size = files(name, args, peers)
        print(f"| {name} | {seconds:.2f} | {ready / 2**20:.0f}, {after / 2**20:.0f} | {size / 2**20:.1f} |", flush=True)
