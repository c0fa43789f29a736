#!/usr/bin/env python3
"""Where the time of a PUT goes: three replicas and a client as separate processes on loopback.

    cargo build --release -p trine && cli/bench/put_cost.py [--for 3s] [--clients 1,64,512] [--key FILE]

For each number of clients there are two tables. The first has processor time per PUT, in the kernel and outside of it, of the
leader, of a follower (the mean of both) and of the client, from /proc/PID/stat. The second has the system calls per PUT by name,
from `strace -c -f` of one process at a time. A process under strace is slower and its batches are larger, so that table says what
is called for what; its counts are not those of a free run. Leaves target/bench/put_cost.json.

Instructions of the leader by area: `cargo bench -p trine-replica -- put_instructions_leader` (replica/BENCHMARKS.md).
"""

import argparse
import json
import os
import signal
import subprocess
import tempfile

from common import TRINE, WORKSPACE, Group, environment_without_settings, fail, missing, processor_seconds, require_trine, \
    seconds

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--for", dest="duration", default="3s", metavar="TIME", help="length of one run")
parser.add_argument("--clients", default="1,64,512", help="numbers of clients with one PUT under way each")
parser.add_argument("--key", metavar="FILE", help="seal all packets with this cluster key file")
parser.add_argument("--no-strace", action="store_true", help="the first table alone")
arguments = parser.parse_args()
seconds(arguments.duration)
# Few: `trine bench` writes each of them once before it measures, many at a time, and that time counts, too.
KEYS = 100


def times_us(pid):
    """Processor time of a process outside the kernel and in it, in microseconds."""
    return [seconds * 1e6 for seconds in processor_seconds(pid)]


def put_command(clients):
    return [str(TRINE), "bench", "--clients", str(clients), "--read-ratio", "0%", "--for", arguments.duration, "--warmup", "0s",
            "--keys", str(KEYS), "--value-size", "64", "--json"]


def run_client(group, clients, prefix=()):
    """PUTs, the client's own times in microseconds, and its report. The keys lie there from an earlier run."""
    environment = {**environment_without_settings(), "TRINE_PEERS": group.peers}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*prefix, *put_command(clients), *group.key_args], env=environment, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            fail(f"trine bench ended with {process.returncode}")
        out.seek(0)
        report = json.loads(out.read())
    return report["write"]["count"], [used.ru_utime * 1e6, used.ru_stime * 1e6], report


def time_table(group, clients, leader):
    before = {node: times_us(process.pid) for node, process in group.processes.items()}
    puts, client, report = run_client(group, clients)
    used = {node: [a - b for a, b in zip(times_us(process.pid), before[node])] for node, process in group.processes.items()}
    followers = [used[node] for node in used if node != leader]
    rows = {"leader": used[leader], "a follower": [sum(column) / 2 for column in zip(*followers)], "client": client}
    all_of_them = [sum(column) for column in zip(*used.values(), client)]
    rows["all four"] = all_of_them
    # Each run writes every key once first, which its count of PUTs leaves out.
    puts += report["keys"]
    print(f"\n{clients} clients: {report['operations_per_second']:,.0f} PUT/s, median {report['write']['p50_ns'] / 1000:.1f} us")
    print("| process | outside the kernel, us per PUT | in the kernel | together |\n|---|---|---|---|")
    for name, (user, system) in rows.items():
        print(f"| {name} | {user / puts:.2f} | {system / puts:.2f} | {(user + system) / puts:.2f} |", flush=True)
    return {name: [value / puts for value in row] for name, row in rows.items()}


def calls(path, puts):
    """System calls per PUT by name, and those of them that failed, from the summary of strace."""
    found = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            fields = line.split()
            if len(fields) in (5, 6) and fields[3].isdigit() and fields[-1] != "total":
                errors = int(fields[4]) if len(fields) == 6 else 0
                found[fields[-1]] = (int(fields[3]) / puts, errors / puts)
    return found


def traced(group, clients, pid):
    """The calls of one process during a run: of the process `pid`, or of the client."""
    with tempfile.NamedTemporaryFile() as summary:
        strace = ["strace", "-c", "-f", "-o", summary.name]
        if pid is None:
            puts, _, report = run_client(group, clients, strace)
        else:
            tracer = subprocess.Popen([*strace, "-p", str(pid)], stderr=subprocess.PIPE)
            tracer.stderr.readline()  # "Process N attached"
            puts, _, report = run_client(group, clients)
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
        return calls(summary.name, puts + report["keys"])


def call_table(group, clients, leader):
    follower = next(node for node in group.processes if node != leader)
    pids = {"leader": group.processes[leader].pid, "a follower": group.processes[follower].pid, "client": None}
    table = {}
    print(f"\n{clients} clients, system calls per PUT under strace (failed ones in brackets):")
    for name, pid in pids.items():
        table[name] = traced(group, clients, pid)
        often = sorted(table[name].items(), key=lambda item: -item[1][0])
        cells = [f"{call} {count:.2f}" + (f" ({errors:.2f})" if errors >= 0.005 else "")
                 for call, (count, errors) in often if count >= 0.005]
        print(f"| {name} | {', '.join(cells)} |", flush=True)
        if group.status()[0] != leader:
            fail("the leader has changed: strace has slowed it down too much")
    return table


def main():
    require_trine()
    wants_strace = not arguments.no_strace
    if wants_strace and (lacking := missing({"strace": "strace"})):
        print(f"no table of system calls: apt-get install {' '.join(lacking)}")
        wants_strace = False
    found = {}
    # A leader under strace is slow, and stays the leader.
    with Group(["--election-timeout", "2s"], key=arguments.key) as group:
        run_client(group, 1)  # Every key is there, and the sessions stand.
        for clients in map(int, arguments.clients.split(",")):
            leader, _ = group.status()
            found[clients] = {"us": time_table(group, clients, leader)}
            if wants_strace:
                found[clients]["calls"] = call_table(group, clients, leader)
    path = WORKSPACE / "target/bench/put_cost.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written: {path}")


main()
