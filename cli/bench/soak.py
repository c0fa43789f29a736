#!/usr/bin/env python3
"""Soak: mixed load for a long time, a replica killed every 20 seconds in the first half and none in the second, a snapshot
every minute throughout. One replica is never killed; its resident memory has to stay within 10 % from minute 5 (or a sixth
of a shorter run) to the end, and every value that was acknowledged last has to be read again.

What a replica may fill, the load fills long before minute 5: 20,000 keys of 1,000 bytes are there after seconds, and with
such values the log in memory meets its bound of bytes (64 MiB) rather than that of entries, whatever the batches are like.
Each minute a line says what the memory of that replica is made of.

    cargo build --release -p trine && cli/bench/soak.py --for 30m

Needs nothing but the trine binary and Python. Leaves target/bench/soak.json. Exit status 1 if the goal is missed.
"""

import argparse
import json
import random
import time

from common import TRINE, Group, Report, fail, free_ports, require_trine, seconds, start, trine

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--for", dest="duration", default="30m", metavar="TIME")
parser.add_argument("--clients", type=int, default=16)
parser.add_argument("--rate", metavar="N", help="operations a second; as many as are answered unless given")
parser.add_argument("--kill-every", default="20s", metavar="TIME")
parser.add_argument("--snapshot-every", default="60s", metavar="TIME")
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()
duration = seconds(arguments.duration)
kill_every, snapshot_every = seconds(arguments.kill_every), seconds(arguments.snapshot_every)
NEVER_KILLED = 2
LOAD = "20s"


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    fail("the replica that is never killed has ended")


def composition(group):
    """What the status of the replica that is never killed says about its memory."""
    _, out, _ = trine(["status", "--json", "--timeout", "1s"], group.peers)
    found = [r["status"] for r in json.loads(out or "{}").get("replicas", []) if r.get("status")]
    own = [s for s in found if s["replica"] == NEVER_KILLED]
    if not own:
        return "no status"
    replica, buffers = own[0], own[0]["transport"]["buffer_bytes"]
    log, sessions, store = replica["log"], replica["sessions"], replica["store"]
    sizes = [b for b in own[0]["transport"]["buffers"] if b["bytes"] >= 1 << 20]
    sizes = ", ".join(f"{b['count']} of {b['capacity'] / 1024:g}" for b in sizes)
    return (
        f"{replica['role']}, message buffers {buffers >> 10} KiB ({sizes}), log {log['bytes'] >> 10} KiB in {log['entries']} entries, "
        f"store {store['logical_bytes'] >> 10} KiB in {store['keys']} keys, "
        f"sessions {sessions['open']} open and {sessions['closed']} closed, {sessions['reply_bytes'] >> 10} KiB"
    )


def snapshot(group, note):
    """A learner with a fourth node id is sent the whole state, and goes again."""
    port = free_ports(1)[0]
    group.start(4, peers=f"{group.peers},127.0.0.1:{port}")
    added = trine(["member", "add", "4", "--learner", "--timeout", "20s"], group.peers)
    sent = False
    end = time.monotonic() + 20
    while added[0] == 0 and time.monotonic() < end and not sent:
        _, status = group.status()
        learner = [m for m in (status or {"members": []})["members"] if m["replica"] == 4]
        sent = bool(learner) and learner[0]["matched"] is not None and (learner[0]["lag"] or 0) < 5_000
        time.sleep(0.2)
    # A learner that stays a member would be waited for after the next kill.
    while (removed := trine(["member", "remove", "4", "--timeout", "20s"], group.peers))[0] != 0:
        note(f"the learner is still a member: {removed[2].strip()}")
        if time.monotonic() > end + 60:
            fail("the learner could not be removed")
        time.sleep(0.5)
    group.kill(4)
    note(f"snapshot to a learner: {'sent' if sent else 'NOT sent: ' + added[2].strip()}")
    return sent


def main():
    require_trine()
    report = Report("soak")
    draw = random.Random(arguments.seed)
    begun = time.monotonic()
    kills = snapshots = answered = failed = 0
    samples, acknowledged, load = [], {}, None

    def note(text):
        print(f"[{time.monotonic() - begun:7.1f} s] {text}", flush=True)

    with Group(["--memory", "256MiB"]) as group:
        next_kill, next_snapshot, next_sample = kill_every, snapshot_every, 0.0
        while (now := time.monotonic() - begun) < duration:
            if load is None or load.poll() is not None:
                if load is not None:
                    failed += load.returncode != 0
                    answered += 1
                command = [str(TRINE), "bench", "--clients", str(arguments.clients), "--read-ratio", "50%"]
                command += ["--keys", "20000", "--value-size", "1000", "--for", LOAD, "--warmup", "0s"]
                command += ["--peers", group.peers, "--timeout", "20s", "--seed", str(answered + 1)]
                command += ["--rate", arguments.rate] if arguments.rate else []
                load = start(command)
            if now >= next_sample:
                samples.append((now, resident_kib(group.processes[NEVER_KILLED].pid)))
                if len(samples) % 12 == 1:
                    note(f"resident {samples[-1][1]} KiB: {composition(group)}")
                next_sample += 5.0
                key = f"soak-{draw.randrange(50)}"
                value = f"{now:.3f}"
                code, _, error = trine(["put", key, value, "--timeout", "20s"], group.peers)
                if code == 0:
                    acknowledged[key] = {value}
                elif "outcome unknown" in error:
                    acknowledged.setdefault(key, set()).add(value)
            if now >= next_kill and now < duration / 2:
                node_id = draw.choice([p for p in group.processes if p != NEVER_KILLED])
                killed = group.incarnation(node_id)
                group.kill(node_id)
                kills += 1
                note(f"killed node {node_id}")
                group.start(node_id)
                # Before it is a voter again no other may be killed: in memory mode that would be the end of the group.
                group.wait_for_voters(3, without=killed)
                note(f"node {node_id} votes again")
                next_kill += kill_every
            if now >= next_snapshot:
                snapshots += snapshot(group, note)
                next_snapshot += snapshot_every
            time.sleep(0.1)
        load.kill()
        load.wait()
        lost = 0
        for key, values in acknowledged.items():
            code, out, _ = trine(["get", key, "--timeout", "20s"], group.peers)
            lost += code != 0 or out not in values
    settled = min(300.0, duration / 6)
    later = [kib for at, kib in samples if at >= settled]
    if len(later) < 2:
        fail("too short: --for 1m at least")
    spread = max(abs(kib - later[0]) for kib in later) / later[0] * 100
    note(f"resident: {later[0]} KiB at {settled:.0f} s, {min(later)} to {max(later)} KiB after, {later[-1]} at the end")
    report.add("resident_memory_drift_percent", spread, "%")
    report.add("acknowledged_writes_lost", float(lost), "")
    report.add("kills", float(kills), "")
    report.add("snapshots", float(snapshots), "")
    report.add("load_runs_that_failed", float(failed), "")
    if not report.write():
        fail("the goal is missed")


main()
