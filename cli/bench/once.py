#!/usr/bin/env python3
"""Redis clients and TRINE.DO: increments that are counted twice without it, and what it costs.

    cargo build --release -p trine && .ci/redis && cli/bench/once.py [--kills 30] [--cores 0,1] [--pairs 8] [--only kills|rate]

Kills: eight threads with redis-py increment a key through the port of one replica, first with INCR, then with TRINE.DO
(cli/tests/all/redis/once.py). The replica is killed by SIGKILL and started again, so many times for each. redis-py retries by itself.
A call that ends without an answer is asked again by its sequence if it was TRINE.DO, and stays unknown if it was INCR.

Rate: 50 connections with a SET under way each, by TRINE.DO with a session a connection and plain, in turn, from one load generator
(set_load.c), bound to the same cores as the replicas. A row shows what redis-benchmark reports for the plain SET.

Leaves target/bench/once.json. Exit status 1 if a goal is missed.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

from common import WORKSPACE, Group, Report, fail, free_ports, median, missing, redis_benchmark_rate, require_trine, start, trine

WAIT_SECONDS = 60
CLIENTS = 50
# More than the window of a session: so many further increments are answers to calls that began after the kill.
GROWTH = 200

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--kills", type=int, default=30)
parser.add_argument("--cores", default="0,1", help="what all processes share when the rate is measured")
parser.add_argument("--pairs", type=int, default=8)
parser.add_argument("--requests", type=int, default=200_000, help="SETs of one run")
parser.add_argument("--only", choices=["kills", "rate"])
arguments = parser.parse_args()


def below_ephemeral_ports(count):
    """The first of so many free TCP ports in a row. No client's socket takes one of them while its replica is down."""
    for first in range(20_000 + os.getpid() % 1_000 * 8, 30_000):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first
        except OSError:
            pass
    fail("no free ports")


def value(group, key):
    status, out, _ = trine(["get", key], group.peers)
    return int(out) if status == 0 else 0


def wait_for_growth(group, key, caller):
    begun, end = value(group, key), time.monotonic() + WAIT_SECONDS
    while value(group, key) < begun + GROWTH:
        if caller.poll() is not None or time.monotonic() > end:
            fail(f"{key} does not grow any more, the caller's status is {caller.poll()}")
        time.sleep(0.05)


def counts_under_kills(group, way, port):
    """What the threads counted while the replica of their port, which has node id 1, was killed."""
    python = WORKSPACE / "target/redis-py/bin/python"
    program = WORKSPACE / "cli/tests/all/redis/once.py"
    caller = start([python, program, way, way, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
    for _ in range(arguments.kills):
        wait_for_growth(group, way, caller)
        killed = group.incarnation(1)
        group.kill(1)
        group.start(1)
        # In memory mode the death of another replica before this one votes again would be the end of the group.
        group.wait_for_voters(3, without=killed)
    wait_for_growth(group, way, caller)
    told, _ = caller.communicate(timeout=WAIT_SECONDS)
    if caller.returncode:
        fail(f"{way}: the caller ended with {caller.returncode}")
    return json.loads(told)


def kills(report):
    if not (WORKSPACE / "target/redis-py").exists():
        return print("kills: left out, .ci/redis installs redis-py")
    port = below_ephemeral_ports(3)
    with Group(["--resp", f"{port}+"]) as group:
        for way, name in (("plain", "INCR"), ("once", "TRINE.DO INCR")):
            counts = counts_under_kills(group, way, port)
            print(f"{name}, {arguments.kills} kills: {counts}", flush=True)
            excess = counts["counted"] - counts["answered"]
            report.add(f"{way}_acknowledged", float(counts["answered"]), "")
            report.add(f"{way}_without_answer", float(counts["unanswered"]), "")
            report.add(f"{way}_counted_less_acknowledged", float(excess), "")
            if way == "plain":
                # Each call without an answer was applied once at most.
                report.add("plain_counted_twice_at_least", float(max(0, excess - counts["unanswered"])), "")
            else:
                # Each of them was asked again, and has its answer now.
                report.add("once_counted_wrongly", float(abs(excess - counts["asked_again"])), "")


def rate(report):
    if lacking := missing({"redis-benchmark": "redis-tools", "cc": "gcc"}):
        return print(f"rate: left out, apt-get install {' '.join(lacking)}")
    os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    port = free_ports(1, socket.SOCK_STREAM)[0]
    with tempfile.TemporaryDirectory() as directory, Group(["--resp", f"{port}+"]):
        load = f"{directory}/set_load"
        subprocess.run(["cc", "-O2", "-o", load, str(pathlib.Path(__file__).with_name("set_load.c"))], check=True)

        def set_rate(way):
            command = [load, str(port), str(CLIENTS), str(arguments.requests), way]
            done = subprocess.run(command, capture_output=True, timeout=300)
            if done.returncode:
                fail(done.stderr.decode())
            return float(done.stdout)

        # The first pair warms both and does not count.
        set_rate("do"), set_rate("plain")
        report.pairs("do_set_50_clients", "req/s", lambda: set_rate("do"), "SET", lambda: set_rate("plain"), arguments.pairs)
        others = [redis_benchmark_rate(port, "set", 1, arguments.requests) for _ in range(3)]
        report.add("set_by_redis_benchmark", median(others), "req/s")


def main():
    require_trine()
    report = Report("once")
    if arguments.only != "rate":
        kills(report)
    if arguments.only != "kills":
        rate(report)
    if not report.write():
        fail("a goal is missed")


main()
