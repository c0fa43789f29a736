#!/usr/bin/env python3
"""Measures `trine sequencer` over UDP on this machine and prints the rows of BENCHMARKS.md.

usage: rates.py [TRINE] [--rounds N]

It starts a group of three replicas and three servers on loopback: with a file, strict with a group, and with a group alone. Each
round measures each server once. The processes end with the script. The machine should do nothing else meanwhile.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time


def free_ports(count):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Servers:
    def __init__(self, trine):
        self.trine, self.running = trine, []

    def start(self, *args, env=None):
        child = subprocess.Popen([self.trine, *args], stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.running.append(child)
        for line in child.stdout:
            if "Ctrl-C" in line:
                return child
        sys.exit(f"{' '.join(args)} ended early")

    def stop(self):
        for child in reversed(self.running):
            child.send_signal(signal.SIGINT)
            child.wait(timeout=30)


def measure(trine, address, window, count):
    out = subprocess.run(
        [trine, "sequencer", "bench", "--connect", address, "--pipeline", str(window), "--count", str(count),
         "--for", "3s", "--rounds", "1", "--json"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trine", nargs="?", default="target/release/trine")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    trine = os.path.abspath(arguments.trine)
    base = free_ports(1)[0] % 20_000 + 30_000
    replicas, addresses = range(base, base + 3), [f"127.0.0.1:{port}" for port in free_ports(3)]
    peers = ",".join(f"127.0.0.1:{port}" for port in replicas)
    servers = Servers(trine)
    kept = {
        "file": lambda directory: ["--state", os.path.join(directory, "state")],
        "group, strict": lambda _: ["--group", peers, "--name", "strict"],
        "group": lambda _: ["--group", peers, "--name", "loose", "--strict", "false"],
    }
    cases = [(64, 1), (1, 1), (64, 64)]
    rates = {(name, case): [] for name in kept for case in cases}
    with tempfile.TemporaryDirectory() as directory:
        try:
            servers.start("up", "--insecure", "--base-port", str(replicas[0]))
            for (name, options), address in zip(kept.items(), addresses):
                servers.start("sequencer", "serve", "--listen", address, *options(directory))
            time.sleep(2)
            for _ in range(arguments.rounds):
                for case in cases:
                    for name, address in zip(kept, addresses):
                        rates[name, case].append(measure(trine, address, *case)["requests_per_s"])
        finally:
            servers.stop()
    print("| kept in | in flight | numbers of a request | requests/s, median | to file, median of ratios |")
    print("|---|---|---|---|---|")
    for name in kept:
        for case in cases:
            ratios = [ours / file for ours, file in zip(rates[name, case], rates["file", case])]
            print(f"| {name} | {case[0]} | {case[1]} | {statistics.median(rates[name, case]):,.0f} | {statistics.median(ratios):.2f} |")


main()
