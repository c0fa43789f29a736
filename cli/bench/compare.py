#!/usr/bin/env python3
"""Three replicas of trine as separate processes on loopback, beside what else there is on this machine:

    cargo build --release -p trine && cli/bench/compare.py [--for 5s] [--only etcd|redis|loop|sealed|cache]

Debian packages of the peers, of which nothing is installed by this script: etcd-server etcd-client redis-server
redis-tools memcached. A peer that is missing is said and left out. Prints the table and leaves target/bench/compare.json.

What is compared with what:
- Keys uniform over 1 M, values of 64 bytes, everywhere. All servers and clients share this machine.
- etcd, three nodes, data in /dev/shm or on this disk, 64 clients with one request at a time in three forms: gRPC with 10
  clients a connection (`trine-etcd-load`, which `cargo build --release --manifest-path cli/bench/etcd/Cargo.toml
  --target-dir target` makes), HTTP gateway with 64 connections, and, for writes,
  `etcdctl check perf --load=l`, etcd's own client. The best figure of them counts. All speak to the leader, which is
  looked for before each run, and a run during which it changed counts no more. Each row has a cluster of its own, as
  has `check perf`, behind which etcd 3.4 repeats each read after 500 ms. Reads are etcd's default, linearizable, of keys
  that are there. trine is given 64 clients with one operation at a time.
- redis-server, one process, no persistence: redis-benchmark SET with 50 clients, and with 50 clients and 16 in flight each.
  trine is given 50 clients, and 800, because one of its clients has one operation under way in `trine bench`.
- A loop of write and fdatasync on the same disk, of as many entries of 112 bytes (key, value, envelope) a time as there are
  clients: what they can have at best if each sync takes all that are waiting and everything else takes no time. The row
  with a goal has 64 clients, the others 256 and 1,024. Beside it three such loops at once, each with a file of its own,
  for three replicas share the disk: the mean of the three.
- A group without a key and clients without one, against a group whose packets are sealed: the median of a write of one
  client, and the writes a second of 64 clients. Both groups run all the time, and one of them is measured at a time.
- `trine cache` over UDP against memcached over TCP, and against redis-server over TCP: one thread each, keys of 16 bytes and
  values of 32, 95 % GETs, one generator. With 16 requests in flight on one connection, and with 16 connections of one each.
Each figure of ours is the median of three runs, alternating with the peer's.
"""

import argparse
import base64
import json
import multiprocessing
import os
import random
import selectors
import shutil
import socket
import subprocess
import tempfile
import time

from common import TRINE, WORKSPACE, Group, Report, fail, free_ports, median, missing, redis_benchmark_rate, \
    redis_server, require_trine, seconds, start

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--for", dest="duration", default="5s", metavar="TIME", help="length of one run")
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--only", choices=["etcd", "redis", "loop", "sealed", "cache"])
parser.add_argument("--disk", default="target", help="a directory on the disk that is to be measured")
arguments = parser.parse_args()
SPAN = seconds(arguments.duration)
KEYS, VALUE_BYTES, ENTRY_BYTES = 1_000_000, 64, 16 + 64 + 32
ETCD_LOAD = WORKSPACE / "target/release/trine-etcd-load"


def trine_rate(group, clients, reads, key=None):
    return trine_bench(group, clients, reads, key)["operations_per_second"]


def trine_bench(group, clients, reads, key=None):
    command = [str(TRINE), "bench", "--clients", str(clients), "--read-ratio", "100%" if reads else "0%", "--json"]
    command += ["--keys", str(KEYS if not reads else 100_000), "--value-size", str(VALUE_BYTES)]
    return bench(command + ["--peers", group.peers, *key_option(key)])


def key_option(key):
    return ["--key", key] if key else []


def bench(command):
    done = subprocess.run([*command, "--for", f"{SPAN}s", "--warmup", "1s", "--timeout", "30s"], capture_output=True)
    if done.returncode:
        fail(f"trine bench: {done.stderr.decode()}")
    return json.loads(done.stdout)


class Etcd:
    """Three nodes on loopback."""

    def __init__(self, directory):
        self.directory = tempfile.mkdtemp(prefix="trine-etcd-", dir=directory)
        ports = free_ports(6, socket.SOCK_STREAM)
        self.clients, peers = ports[:3], ports[3:]
        cluster = ",".join(f"n{i}=http://127.0.0.1:{port}" for i, port in enumerate(peers))
        self.processes = []
        for i in range(3):
            own, peer = f"http://127.0.0.1:{self.clients[i]}", f"http://127.0.0.1:{peers[i]}"
            command = ["etcd", "--name", f"n{i}", "--data-dir", f"{self.directory}/n{i}", "--log-level", "error"]
            # On a machine that is full of load the default of one second makes it change leaders for nothing.
            command += ["--election-timeout", "5000"]
            command += ["--listen-client-urls", own, "--advertise-client-urls", own]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            command += ["--initial-cluster", cluster, "--initial-cluster-state", "new"]
            self.processes.append(start(command))
        self.wait_for_leader()

    def ctl(self, *words):
        endpoints = ",".join(f"127.0.0.1:{port}" for port in self.clients)
        environment = {**os.environ, "ETCDCTL_API": "3"}
        return subprocess.run(["etcdctl", "--endpoints", endpoints, *words], env=environment, capture_output=True, timeout=120)

    def wait_for_leader(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            done = self.ctl("endpoint", "status", "-w", "json")
            for status in json.loads(done.stdout or b"[]"):
                inner = status["Status"]
                if inner.get("leader") and inner["leader"] == inner["header"]["member_id"]:
                    return int(status["Endpoint"].rsplit(":", 1)[1])
            time.sleep(0.2)
        self.stop()
        fail("etcd has no leader after 30 s")

    def own_benchmark(self):
        """Writes a second that `etcdctl check perf` saw."""
        text = self.ctl("check", "perf", "--load=l").stdout.decode()
        words = text.replace(":", " ").split()
        return max((float(words[i - 1]) for i, w in enumerate(words) if w.startswith("writes/s") and i), default=0.0)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def gateway_worker(port, connections, span, reads, seed, found):
    """A closed loop over many connections; the answers in `span` seconds."""
    draw = random.Random(seed)
    value = base64.b64encode(b"v" * VALUE_BYTES).decode()
    selector = selectors.DefaultSelector()

    def request():
        key = base64.b64encode(b"%016d" % draw.randrange(KEYS)).decode()
        path = "range" if reads else "put"
        body = json.dumps({"key": key} if reads else {"key": key, "value": value}).encode()
        return b"POST /v3/kv/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body

    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request())
        selector.register(connection, selectors.EVENT_READ, bytearray())
    answers, end = 0, time.monotonic() + span
    while time.monotonic() < end:
        for entry, _ in selector.select(0.1):
            entry.data.extend(entry.fileobj.recv(65536))
            head = entry.data.find(b"\r\n\r\n")
            if head < 0:
                continue
            length = next(int(l.split(b":")[1]) for l in bytes(entry.data[:head]).lower().split(b"\r\n") if l.startswith(b"content-length"))
            if len(entry.data) < head + 4 + length:
                continue
            if not entry.data.startswith(b"HTTP/1.1 200"):
                fail(f"etcd answered {bytes(entry.data[:200])}")
            entry.data.clear()
            answers += 1
            entry.fileobj.sendall(request())
    found.put(answers / span)


def gateway_rate(leader, reads):
    """64 connections in two processes: one process of Python alone could be what is measured."""
    found = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=gateway_worker, args=(leader, 32, SPAN, reads, n, found)) for n in range(2)]
    for worker in workers:
        worker.start()
    rates = [found.get() for _ in workers]
    for worker in workers:
        worker.join()
    return sum(rates)


def grpc_rate(leader, reads):
    """The keys are loaded before; fewer than for writes, because loading them takes longer than the run."""
    command = [str(ETCD_LOAD), f"127.0.0.1:{leader}", "--clients", "64", "--reads", "100" if reads else "0"]
    command += ["--keys", "10000", "--value-size", str(VALUE_BYTES), "--for", str(SPAN)]
    # Whatever does not answer is given up: the loop itself waits as long as it takes.
    done = subprocess.run(command, capture_output=True, timeout=SPAN + 120)
    if done.returncode:
        fail(f"etcd over gRPC: {done.stderr.decode()}")
    return json.loads(done.stdout)["operations_per_second"]


def etcd_rate(etcd, reads):
    """The better of both ways to ask, of the leader."""
    return max(while_it_leads(etcd, ask, reads) for ask in (grpc_rate, gateway_rate))


def while_it_leads(etcd, ask, reads):
    for _ in range(5):
        leader = etcd.wait_for_leader()
        rate = ask(leader, reads)
        if etcd.wait_for_leader() == leader:
            return rate
    fail("etcd changes its leader in every run: this machine is too busy")


def loop_worker(directory, entries, start, found):
    """Entries a second of a loop of write and fdatasync over a file whose content is there."""
    path = os.path.join(directory, f"trine-loop-{os.getpid()}")
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    batch, syncs = b"x" * (entries * ENTRY_BYTES), 0
    for megabyte in range(64):
        os.pwrite(file, bytes(1 << 20), megabyte << 20)
    os.fsync(file)
    start.wait()
    end = time.monotonic() + SPAN
    while time.monotonic() < end:
        os.pwrite(file, batch, (syncs * len(batch)) % (60 << 20))
        os.fdatasync(file)
        syncs += 1
    os.close(file)
    os.unlink(path)
    found.put(syncs * entries / SPAN)


def loop_rate(directory, entries, loops=1):
    """The mean of so many loops at the same time, each in a process with a file of its own."""
    found, start = multiprocessing.Queue(), multiprocessing.Barrier(loops)
    workers = [multiprocessing.Process(target=loop_worker, args=(directory, entries, start, found)) for _ in range(loops)]
    for worker in workers:
        worker.start()
    rates = [found.get() for _ in workers]
    for worker in workers:
        worker.join()
    return sum(rates) / loops


def redis_rate(port, pipeline):
    requests = 200_000 if pipeline == 1 else 1_000_000
    return redis_benchmark_rate(port, "set", pipeline, requests, ["-d", str(VALUE_BYTES), "-r", str(KEYS)])


def row(report, name, ours, peer, theirs, unit="ops/s"):
    report.pairs(name, unit, ours, peer, theirs, arguments.runs)


def against_etcd(report):
    if lacking := missing({"etcd": "etcd-server", "etcdctl": "etcd-client"}):
        return print(f"etcd is left out: apt-get install {' '.join(lacking)}")
    if not ETCD_LOAD.exists():
        return print("etcd is left out: cargo build --release --manifest-path cli/bench/etcd/Cargo.toml --target-dir target")
    memory, disk = etcd_own_rate("/dev/shm"), etcd_own_rate(arguments.disk)
    with Group() as group, Etcd("/dev/shm") as etcd:
        row(report, "put_rate_memory_vs_etcd", lambda: trine_rate(group, 64, False), "etcd, /dev/shm",
            lambda: max(memory, etcd_rate(etcd, False)))
    with Group() as group, Etcd("/dev/shm") as etcd:
        row(report, "get_linearizable_rate_vs_etcd", lambda: trine_rate(group, 64, True), "etcd",
            lambda: etcd_rate(etcd, True))
    with DiskGroup() as group, Etcd(arguments.disk) as etcd:
        row(report, "put_rate_disk_batch_vs_etcd", lambda: trine_rate(group, 64, False), "etcd, this disk",
            lambda: max(disk, etcd_rate(etcd, False)))


def etcd_own_rate(directory):
    """In a cluster of its own: behind that load etcd 3.4 answers about a hundred reads a second."""
    with Etcd(directory) as etcd:
        rate = etcd.own_benchmark()
    print(f"  etcdctl check perf in {directory}: {rate:,.0f} writes/s")
    return rate


class DiskGroup(Group):
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="trine-disk-", dir=arguments.disk)
        super().__init__(["--log", "disk", "--fsync", "batch", "--data-dir", f"{self.directory}/{{node_id}}"])

    def stop(self):
        super().stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def against_loop(report):
    with DiskGroup() as group:
        for clients in (64, 256, 1024):
            name = "put_rate_disk_batch_vs_write_loop" + ("" if clients == 64 else f"_{clients}")
            ours = lambda: trine_rate(group, clients, False)
            row(report, name, ours, "write+fdatasync", lambda: loop_rate(arguments.disk, clients))
            row(report, f"{name}_of_three", ours, "one of three", lambda: loop_rate(arguments.disk, clients, 3))


def against_redis(report):
    if lacking := missing({"redis-server": "redis-server", "redis-benchmark": "redis-tools"}):
        return print(f"redis is left out: apt-get install {' '.join(lacking)}")
    port = free_ports(1, socket.SOCK_STREAM)[0]
    redis = redis_server(port)
    try:
        with Group() as group:
            row(report, "put_rate_50_clients_vs_redis", lambda: trine_rate(group, 50, False), "redis SET -c 50",
                lambda: redis_rate(port, 1))
            row(report, "put_rate_pipeline_16_vs_redis", lambda: trine_rate(group, 800, False), "redis SET -c 50 -P 16",
                lambda: redis_rate(port, 16))
    finally:
        redis.kill()
        redis.wait()


def cache_rate(target, clients, pipeline):
    return bench([str(TRINE), "bench", "--target", target, "--clients", str(clients), "--pipeline", str(pipeline), "--json",
                  "--read-ratio", "95%", "--value-size", "32", "--keys", "100000"])["operations_per_second"]


def cache_against_others(report):
    lacking = missing({"redis-server": "redis-server", "memcached": "memcached"})
    if lacking:
        print(f"left out: apt-get install {' '.join(lacking)}")
    address, peers = f"127.0.0.1:{free_ports(1)[0]}", {}
    started = [start([str(TRINE), "cache", "serve", "--listen", address, "--memory", "256MiB"])]
    if "memcached" not in lacking:
        port = free_ports(1, socket.SOCK_STREAM)[0]
        # It refuses to run as root unless a user is named.
        started.append(start(["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "256"]))
        peers["memcached"] = f"memcached://127.0.0.1:{port}"
    if "redis-server" not in lacking:
        port = free_ports(1, socket.SOCK_STREAM)[0]
        started.append(redis_server(port))
        peers["redis"] = f"redis://127.0.0.1:{port}"
    time.sleep(1)
    try:
        for peer, target in peers.items():
            for name, clients, pipeline in (("16_outstanding", 1, 16), ("16_connections", 16, 1)):
                row(report, f"cache_get_rate_vs_{peer}_{name}", lambda: cache_rate(f"cache://{address}", clients, pipeline),
                    f"{peer}, TCP", lambda: cache_rate(target, clients, pipeline))
    finally:
        for process in started:
            process.kill()
            process.wait()


def sealed_against_unsealed(report):
    with tempfile.TemporaryDirectory(prefix="trine-key-") as directory:
        key = f"{directory}/group.key"
        subprocess.run([str(TRINE), "key", "new", "--out", key], check=True, capture_output=True)
        with Group() as plain, Group(key=key) as sealed:
            medians = lambda group, key=None: trine_bench(group, 1, False, key)["write"]["p50_ns"] / 1_000
            row(report, "put_median_sealed_vs_unsealed", lambda: medians(sealed, key), "unsealed", lambda: medians(plain), "us")
            rates = lambda group, key=None: trine_rate(group, 64, False, key)
            row(report, "put_rate_sealed_vs_unsealed", lambda: rates(sealed, key), "unsealed", lambda: rates(plain))


def main():
    require_trine()
    os.makedirs(arguments.disk, exist_ok=True)
    report = Report("compare")
    parts = {"redis": against_redis, "loop": against_loop, "etcd": against_etcd, "sealed": sealed_against_unsealed,
             "cache": cache_against_others}
    for name, part in parts.items():
        if arguments.only in (None, name):
            part(report)
    if not report.write():
        fail("a goal is missed")


main()
