#!/usr/bin/env python3
"""How long a client waits that begins right after the end of the leader, and does not know another one yet.

    cargo build --release -p trine && cli/bench/new_client.py [--rounds 12] [--signal KILL|STOP] [-- OPTIONS OF trine serve]

Each round has its own group of three. The leader gets the signal, and `trine put` starts at the same moment. The time is that until
this process has ended: it includes the about 3 ms that a process takes to start.
"""

import argparse
import os
import signal
import statistics
import time

from common import Group, fail, require_trine, trine

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=12)
parser.add_argument("--signal", choices=["KILL", "STOP"], default="KILL")
parser.add_argument("serve", nargs="*", metavar="OPTION", help="an option of trine serve, behind --")
arguments = parser.parse_args()


def one_round():
    with Group(arguments.serve) as group:
        trine(["put", "key", "value"], group.peers)
        leader = group.wait_for_voters(3)
        time.sleep(0.5)
        begun = time.monotonic()
        os.kill(group.processes[leader].pid, signal.Signals[f"SIG{arguments.signal}"])
        status, _, error = trine(["put", "key", "value", "--timeout", "20s"], group.peers)
        if status:
            fail(error)
        return (time.monotonic() - begun) * 1000


require_trine()
times = [one_round() for _ in range(arguments.rounds)]
print(f"median {statistics.median(times):.1f} ms, {min(times):.1f} to {max(times):.1f}, {len(times)} rounds")
