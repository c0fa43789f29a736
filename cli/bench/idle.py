#!/usr/bin/env python3
"""What an idle group of three replicas costs: processor time and wake-ups of each replica, without any client.

    cargo build --release -p trine && cli/bench/idle.py [--for 60s] [--key FILE]

Processor time is in microseconds a second: 10,000 are one percent of a core. It is that of all threads, by the kernel's own
account (/proc/PID/task/*/schedstat), which is finer than the ticks of /proc/PID/stat. On a busy machine a wake-up costs more,
and the wake-ups are the better figure. Leaves target/bench/idle.json.
"""

import argparse
import os
import pathlib
import time

from common import Group, Report, fail, require_trine, seconds

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--for", dest="duration", default="60s", metavar="TIME", help="how long they are watched")
parser.add_argument("--key", metavar="FILE", help="seal all packets with this cluster key file")
arguments = parser.parse_args()
SECONDS = seconds(arguments.duration)
# Sessions and snapshots of the beginning are done by then.
SETTLE_SECONDS = 3


def account(pid):
    """Seconds of processor time of all threads of a process, and how often they went to sleep."""
    used, sleeps = 0, 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        used += int((thread / "schedstat").read_text().split()[0]) / 1e9
        status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
        sleeps += int(status["voluntary_ctxt_switches"])
    return used, sleeps


def main():
    require_trine()
    report = Report("idle")
    with Group(key=arguments.key) as group:
        time.sleep(SETTLE_SECONDS)
        leader, status = group.status()
        pids = {node_id: process.pid for node_id, process in group.processes.items()}
        before = {node_id: account(pid) for node_id, pid in pids.items()}
        begun = time.monotonic()
        time.sleep(SECONDS)
        after = {node_id: account(pid) for node_id, pid in pids.items()}
        passed = time.monotonic() - begun
        still, later = group.status()
        if not status or not later or (still, later["term"]) != (leader, status["term"]):
            fail("the leader has changed meanwhile, or did not answer: that is no idle group. Try it with less other work")
    total = 0
    followers = iter(("first", "second"))
    for node_id in sorted(pids, key=lambda node_id: node_id != leader):
        name = "leader" if node_id == leader else f"{next(followers)}_follower"
        used, sleeps = (now - then for now, then in zip(after[node_id], before[node_id]))
        total += used
        report.add(name, 1e6 * used / passed, "us/s")
        report.add(f"{name}_wake_ups", sleeps / passed, "1/s")
    report.add("group_of_three", 1e6 * total / passed, "us/s")
    if not report.write():
        fail("a goal is missed")


main()
