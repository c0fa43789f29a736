#!/usr/bin/env python3
"""redis-benchmark against the Redis front of a group of three replicas and against an unreplicated redis-server, in turn.

    cargo build --release -p trine && cli/bench/resp.py [--cores 0,1] [--pairs 8] [--requests 200000]

Server, replicas and benchmark are all bound to the same cores. Prints the table and leaves target/bench/resp.json. Needs
redis-server and redis-benchmark (Debian: redis-server, redis-tools); without them it says so and does nothing.
"""

import argparse
import os
import socket
import time

from common import Group, Report, fail, free_ports, missing, redis_benchmark_rate, redis_server, require_trine

START_LIMIT_SECONDS = 30
# Name, test of redis-benchmark, pipeline.
CASES = [
    ("set_50_clients", "set", 1),
    ("set_50_clients_pipeline_16", "set", 16),
    ("get_50_clients", "get", 1),
    ("get_50_clients_pipeline_16", "get", 16),
]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cores", default="0,1", help="what all processes share")
parser.add_argument("--pairs", type=int, default=8)
parser.add_argument("--requests", type=int, default=200_000)
arguments = parser.parse_args()


def wait_for_port(port):
    until = time.monotonic() + START_LIMIT_SECONDS
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"SET started 1\r\n")
                if connection.recv(64).startswith(b"+OK"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    fail(f"nothing answers at port {port}")


def measure(report, case, front, server):
    name, test, pipeline = case
    requests = arguments.requests * (4 if pipeline > 1 else 1)
    rate = lambda port: redis_benchmark_rate(port, test, pipeline, requests)
    # The first pair warms both and does not count.
    rate(front), rate(server)
    report.pairs(name, "req/s", lambda: rate(front), "redis-server", lambda: rate(server), arguments.pairs)


def main():
    if lacking := missing({"redis-server": "redis-server", "redis-benchmark": "redis-tools"}):
        return print(f"left out: apt-get install {' '.join(lacking)}")
    require_trine()
    os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    server, front = free_ports(2, socket.SOCK_STREAM)
    redis_server(server)
    report = Report("resp")
    with Group(["--resp", f"{front}+"]):
        for port in (server, front):
            wait_for_port(port)
        for case in CASES:
            measure(report, case, front, server)
    if not report.write():
        fail("a goal is missed")


main()
