"""What the scripts under cli/bench share: a group of processes, the report's form, and how a missing peer is said."""

import atexit
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WORKSPACE = pathlib.Path(__file__).resolve().parents[2]
TRINE = pathlib.Path(os.environ.get("TRINE", WORKSPACE / "target/release/trine"))


def fail(text):
    sys.exit(f"{sys.argv[0]}: {text}")


def require_trine():
    if not TRINE.exists():
        fail(f"{TRINE} is missing: cargo build --release -p trine (or name another one with TRINE=...)")


def missing(programs):
    """The Debian packages of those programs that are not there: {program: package}."""
    return sorted({package for program, package in programs.items() if not shutil.which(program)})


STARTED = []


def start(command, **options):
    """Starts a process that ends with this script, also when that is told to go by SIGTERM or SIGHUP."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    STARTED[:] = [process for process in STARTED if process.poll() is None]
    STARTED.append(subprocess.Popen(command, **options))
    return STARTED[-1]


@atexit.register
def end_all():
    for process in STARTED:
        process.kill()  # a stopped one goes, too
        process.wait()


# As if it had been interrupted: what is open is closed, and what was started is ended.
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: sys.exit(128 + number))


def redis_server(port):
    """An unreplicated redis-server that keeps nothing on disk."""
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    return start(command, cwd=tempfile.gettempdir())


def redis_benchmark_rate(port, test, pipeline, requests, further=()):
    """Requests a second that redis-benchmark reports, with 50 clients."""
    command = ["redis-benchmark", "-p", str(port), "-t", test, "-c", "50", "-P", str(pipeline), "-n", str(requests)]
    done = subprocess.run([*command, *further, "--csv"], check=True, capture_output=True, timeout=300)
    return float(done.stdout.decode().strip().splitlines()[-1].split(",")[1].strip('"'))


def free_ports(count, kind=socket.SOCK_DGRAM):
    sockets = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def processor_seconds(pid):
    """What a process has used outside the kernel and in it."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(word) / os.sysconf("SC_CLK_TCK") for word in words[11:13]]


def environment_without_settings():
    return {k: v for k, v in os.environ.items() if not k.startswith("TRINE_")}


def trine(arguments, peers, timeout=60):
    """Runs a command; (status, standard output, standard error)."""
    environment = {**environment_without_settings(), "TRINE_PEERS": peers}
    done = subprocess.run([str(TRINE), *arguments], env=environment, capture_output=True, timeout=timeout)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Group:
    """Three replicas as processes of this script's, ended with it."""

    def __init__(self, serve_args=(), count=3, key=None):
        """With `key`, the path of a cluster key file, all packets are sealed."""
        self.key_args = ["--key", key] if key else []
        self.ports = free_ports(count)
        self.peers = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.serve_args = list(serve_args)
        self.processes = {}
        for node_id in range(1, count + 1):
            self.start(node_id, bootstrap=node_id == 1)
        self.wait_for_voters(count)

    def start(self, node_id, bootstrap=False, peers=None):
        arguments = [str(TRINE), "serve", "--id", str(node_id), "--peers", peers or self.peers]
        arguments += self.key_args
        arguments += [a.replace("{node_id}", str(node_id)) for a in self.serve_args]
        if bootstrap:
            arguments.append("--bootstrap")
        self.processes[node_id] = start(arguments, env=environment_without_settings())

    def kill(self, node_id):
        process = self.processes.pop(node_id)
        process.kill()
        process.wait()

    def signal(self, node_id, number):
        self.processes[node_id].send_signal(number)

    def status(self):
        """The leader's node id and its status, or (None, None)."""
        code, out, _ = trine([*self.key_args, "status", "--json", "--timeout", "1s"], self.peers)
        replicas = json.loads(out).get("replicas", []) if out else []
        found = [r["status"] for r in replicas if r.get("status")]
        leaders = [s for s in found if s["role"] == "leader"]
        if not leaders:
            return None, None
        best = max(leaders, key=lambda s: s["term"])
        return best["replica"], best

    def incarnation(self, node_id):
        """The incarnation with this node id, as the leader knows it."""
        _, status = self.status()
        incarnations = [m["incarnation"] for m in (status or {"members": []})["members"] if m["replica"] == node_id]
        return incarnations[0] if incarnations else None

    def wait_for_voters(self, count, limit=240, without=None):
        """Until so many vote and answer; none of them is the incarnation `without`, which was killed a moment ago and
        has not been silent for long enough to be missed."""
        status = None
        end = time.monotonic() + limit
        while time.monotonic() < end:
            node_id, status = self.status()
            if node_id and sum(m["voter"] for m in status["members"]) == count and not status["change_in_progress"]:
                silent = [m for m in status["members"] if not m["this"] and (m["silent_ns"] or 1 << 60) > 500_000_000]
                if not silent and without not in [m["incarnation"] for m in status["members"]]:
                    return node_id
            time.sleep(0.1)
        members = status and [
            {k: m[k] for k in ("replica", "voter", "lag", "in_snapshot", "silent_ns")} for m in status["members"]
        ]
        ended = {node_id: p.poll() for node_id, p in self.processes.items() if p.poll() is not None}
        fail(f"the group did not have {count} voters within {limit} s; members: {members}; ended: {ended}")

    def stop(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Report:
    """Rows in the form of report/src/lib.rs, with goals from goals.json, in target/bench/NAME.json."""

    def __init__(self, name):
        self.name = name
        goals = json.loads((WORKSPACE / "cli/bench/goals.json").read_text())
        self.goals = goals.get(name, {})
        self.rows = []

    def add(self, name, value, unit, against=None, ratio=None):
        goal = self.goals.get(name)
        measured = value if ratio is None else ratio
        met = None
        if goal:
            met = measured <= goal["at_most"] if "at_most" in goal else measured >= goal["at_least"]
        row = {"name": name, "value": value, "unit": unit, "against": against, "ratio": ratio, "goal": goal, "met": met}
        self.rows.append(row)
        ratio_text = "" if ratio is None else f"{ratio:.2f} x {against}"
        goal_text = "" if goal is None else " ".join(f"{k.replace('_', ' ')} {v}" for k, v in goal.items())
        met_text = {None: "", True: "met", False: "MISSED"}[met]
        print(f"{name:<36} {value:>14,.1f} {unit:<8} {ratio_text:<32} {goal_text:<14} {met_text}", flush=True)

    def pairs(self, name, unit, ours, peer, theirs, runs):
        """Our figure and the peer's in turn, so that a machine whose speed drifts does both alike. The row has the medians
        of each and of the ratios of neighbours."""
        pairs = [(ours(), theirs()) for _ in range(runs)]
        ratios = [own / other for own, other in pairs]
        other = median(p[1] for p in pairs)
        self.add(name, median(p[0] for p in pairs), unit, f"{peer} ({other:,.0f})", median(ratios))
        print(f"{'':<36} ratios of {runs} pairs: {min(ratios):.2f} to {max(ratios):.2f}", flush=True)

    def write(self):
        path = WORKSPACE / "target/bench" / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.rows, indent=2) + "\n")
        print(f"written: {path}")
        return all(row["met"] is not False for row in self.rows)


def seconds(text):
    """A time as trine takes it: 30m, 90s, 500ms."""
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if text.endswith(unit) and text[: -len(unit)].replace(".", "", 1).isdigit():
            return float(text[: -len(unit)]) * factor
    fail(f"{text!r} is no time: write 30m, 90s or 500ms")


def median(values):
    return statistics.median(values)
