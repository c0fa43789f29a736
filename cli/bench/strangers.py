#!/usr/bin/env python3
"""Strangers against clients with a key: three replicas on loopback that require keys, eight clients that write, and one
stranger on one core who has no key and sends as fast as it can.

    cargo build --release -p trine && cli/bench/strangers.py [--for 5s] [--pairs 3] [--only KIND] [--calm 60s]

What the stranger sends, a kind at a time, to all replicas in turn:
- connects: CONNECT of sessions without a key, each with the cookie that it was given, as a client does that wants to put
  values, or to have leadership transferred. Where keys are not required, this takes all sessions.
- handshakes: the same with the name of the members' key, which anybody can read on the network, and a first message that
  no key has made.
- puts, requests, registrations, reads: REQUESTs without a seal in sessions of others: values, leadership transfers, the
  first packet of 8 MiB, registrations, and reads of 1 MB whose answer is never fetched.
- disconnects: DISCONNECT, PING and RESET without a seal, and with a tag that no key has made. As root they carry the
  addresses of the clients (a raw socket). Otherwise they come from the stranger's own address, and that is said.

Each flood also goes to ports of this machine at which nobody listens. That is the baseline: what a program costs the
others that sends so much. Both alternate in pairs, and the ratio is the median of the pairs' ratios of PUT/s. Behind it:
changes of the leader's term, errors of the clients, and memory of the replicas (VmRSS) before, at its peak, and after the
calm time. What the stranger itself costs: packets and bytes that come back for each that it sends, and the processor time
of the replicas for each of its packets that they got (with what they spend on the clients left out: that of the baseline).

The stranger has a core for itself. Replicas and clients share the others.

A stranger on loopback shares its address with the clients. With keys, that does not matter: who has proven a key is
counted by the key. Only callers who have proven nothing are counted by address.
"""

import argparse
import hashlib
import hmac
import json
import multiprocessing
import os
import pathlib
import random
import socket
import struct
import subprocess
import tempfile
import time

from common import TRINE, Group, Report, fail, free_ports, median, processor_seconds, require_trine, seconds, start

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--for", dest="duration", default="5s", metavar="TIME", help="length of one run")
parser.add_argument("--pairs", type=int, default=5, help="runs of each flood, at the group and at closed ports")
parser.add_argument("--calm", default="60s", metavar="TIME", help="time behind a kind's last run until memory is read")
parser.add_argument("--only", action="append", metavar="KIND")
parser.add_argument("--costs", action="store_true", help="only what a packet costs: a program that drops all, and a group without clients")

REQUEST, RESET, CONNECT, COOKIE, DISCONNECT, PING = 1, 7, 8, 9, 12, 14
CLIENT, ADMIN = 1, 8
SEALED, TRAILER = 4, 4
KINDS = ["connects", "handshakes", "puts", "requests", "registrations", "reads", "disconnects"]
SESSIONS = 64  # indexes that forged packets name
KEYS = 10_000  # few, so that the store does not grow while it is measured
BATCH = 64

# CRC32C, a table for each byte.
LAST_CORE = max(os.sched_getaffinity(0))
OTHER_CORES = os.sched_getaffinity(0) - {LAST_CORE} or {LAST_CORE}
TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc(data):
    state = 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def packet(kind, session, body, nonce=None, request=0, message_kind=0, message_bytes=0, flags=0):
    """A packet with a good checksum (transport/PROTOCOL.md, section 2)."""
    head = struct.pack("<BBHHB", 1 << 4 | kind, flags, session, 24 + len(body), message_kind)
    head += struct.pack("<I", message_bytes)[:3] + struct.pack("<H", 0) + struct.pack("<Q", request)[:6] + b"\0\0"
    seed = b"" if nonce is None else struct.pack("<Q", nonce)
    return head + struct.pack("<I", crc(seed + head + body)) + body


def connect(nonce, cookie, features, after=b""):
    body = struct.pack("<HHBBHQQQQ", 1, 32, 8, features, 1472, nonce, 0, 77, cookie)
    return packet(CONNECT, 0xFFFF, body + after)


def member_key_id(path):
    """The name of the members' key: kind 1 and the fingerprint of the member root. It is no secret."""
    fields = dict(line.split(" = ") for line in pathlib.Path(path).read_text().splitlines() if " = " in line)
    group, root = bytes.fromhex(fields["group"]), bytes.fromhex(fields["member-root"])
    extracted = hmac.new(group, root, hashlib.sha256).digest()
    return b"\x01" + hmac.new(extracted, b"trine 1 fingerprint\0\x01", hashlib.sha256).digest()[:4]


def client_request(operation, command):
    return struct.pack("<BBBBIQQQQ", 1, operation, 0, 0, 0, 0, 1 << 16, 1, 7) + command


def forged_requests(kind):
    """Packets of REQUESTs in sessions that are not the stranger's."""
    value = b"\x02" + bytes(90)
    for session in range(SESSIONS):
        nonce = random.getrandbits(64)
        made = {
            "puts": [(CLIENT, client_request(7, value), None), (ADMIN, bytes(48), None)],
            "requests": [(CLIENT, bytes(1424), 8 << 20)],
            "registrations": [(CLIENT, client_request(1, b""), None)],
            "reads": [(CLIENT, client_request(5, b"\x01\x03key"), None)],
        }[kind]
        for message_kind, body, size in made:
            size = len(body) if size is None else size
            yield packet(REQUEST, session, body, nonce, session << 6, message_kind, size)


def forged_controls():
    for session in range(SESSIONS):
        for kind in (DISCONNECT, PING, RESET):
            body = struct.pack("<HHIQ", session, 0, 0, random.getrandbits(64))
            yield packet(kind, session, body, request=random.getrandbits(48))
            sealed = body + bytes([5]) + random.randbytes(5 + 16)
            yield packet(kind, session, sealed, request=random.getrandbits(48), flags=TRAILER)


def cookies(sock, address, count, features, after):
    """CONNECTs with the cookies that the replica at `address` gives for them; none if nobody answers."""
    nonces = [random.getrandbits(64) | 1 for _ in range(count)]
    # Each has an index of its own in its answer, so the answers can be told apart by order of the nonces' seeds.
    ready = []
    for nonce in nonces:
        sock.sendto(connect(nonce, 0, features), address)
        try:
            answer, _ = sock.recvfrom(2048)
        except OSError:
            continue
        if answer[0] & 0x0F == COOKIE:
            ready.append(connect(nonce, struct.unpack("<Q", answer[24:32])[0], features, after))
    return ready or [connect(nonce, 0, features, after) for nonce in nonces]


class Spoofed:
    """Sends UDP in the name of any address of this machine, as root."""

    def __init__(self, sources):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.sources, self.next = sources, 0

    def sendto(self, data, address):
        self.next += 1
        source = self.sources[self.next % len(self.sources)]
        udp = struct.pack(">HHHH", source, address[1], 8 + len(data), 0) + data
        loopback = socket.inet_aton("127.0.0.1")
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, loopback, loopback)
        self.sock.sendto(ip + udp, address)


def clients_ports(pid):
    """UDP ports of a process."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            pass
    found = []
    for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        if f"socket:[{words[9]}]" in inodes:
            found.append(int(words[1].split(":")[1], 16))
    return found


def stranger(kind, ports, key_id, sources, span, results):
    """Floods for `span` seconds on one core, and says what it sent and what came back."""
    os.sched_setaffinity(0, {LAST_CORE})
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(0.05)
    addresses = [("127.0.0.1", port) for port in ports]
    features, after = (SEALED, bytes([len(key_id)]) + key_id + random.randbytes(56)) if kind == "handshakes" else (0, b"")
    sender, made = sock, {}
    if kind in ("connects", "handshakes"):
        made = {address: cookies(sock, address, 16, features, after) for address in addresses}
    elif kind == "disconnects":
        made = {address: list(forged_controls()) for address in addresses}
        if sources:
            sender = Spoofed(sources)
    else:
        made = {address: list(forged_requests(kind)) for address in addresses}
    packets = [(data, address) for address, all_of in made.items() for data in all_of]
    random.shuffle(packets)
    sock.setblocking(False)
    sent = sent_bytes = back = back_bytes = 0
    end = time.monotonic() + span
    while time.monotonic() < end:
        for _ in range(BATCH):
            data, address = packets[sent % len(packets)]
            try:
                sender.sendto(data, address)
            except OSError:
                pass  # nobody listens, or the buffer is full
            sent += 1
            sent_bytes += len(data)
        try:
            while True:
                back_bytes += len(sock.recv(2048))
                back += 1
        except OSError:
            pass
    time.sleep(0.1)
    try:
        while True:
            back_bytes += len(sock.recv(2048))
            back += 1
    except OSError:
        pass
    results.put({"sent": sent, "sent_bytes": sent_bytes, "back": back, "back_bytes": back_bytes})


def term(group):
    """The leader's term; None if nobody leads."""
    _, status = group.status()
    return status["term"] if status else None


def processor_seconds_of(group):
    """What the replicas have used."""
    return sum(sum(processor_seconds(process.pid)) for process in group.processes.values())


def resident_kib(group):
    """The memory of the replicas."""
    total = 0
    for process in group.processes.values():
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return total


def bench_command(group, span):
    """Eight clients that write."""
    command = [str(TRINE), *group.key_args, "bench", "--clients", "8", "--read-ratio", "0%", "--keys", str(KEYS), "--json"]
    return command + ["--for", f"{span}s", "--warmup", "1s", "--timeout", "30s", "--peers", group.peers]


def warm_up(group):
    """Until the store, the log, the sessions and their answers take no more memory."""
    before = 0
    for _ in range(10):
        subprocess.run(bench_command(group, 3), check=True, capture_output=True)
        now = resident_kib(group)
        if now < before * 1.02:
            return
        before = now


class Run:
    """Eight clients that write, and a stranger at `ports`."""

    def __init__(self, group, kind, ports, span, key_id):
        spent, term_before = processor_seconds_of(group), term(group)
        bench = start(bench_command(group, span), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        sources = clients_ports(bench.pid) if kind == "disconnects" and os.geteuid() == 0 else []
        results = multiprocessing.Queue()
        flood = multiprocessing.Process(target=stranger, args=(kind, ports, key_id, sources, span + 1.0, results))
        flood.start()
        self.peak_kib = 0
        while bench.poll() is None:
            self.peak_kib = max(self.peak_kib, resident_kib(group))
            time.sleep(0.1)
        self.flood = results.get(timeout=60)
        flood.join()
        out, err = bench.communicate()
        if bench.returncode:
            fail(f"trine bench: {err.decode()}")
        self.result = json.loads(out)
        self.rate = float(self.result["operations_per_second"])
        self.spent = processor_seconds_of(group) - spent
        self.terms = (term(group) or 0) - (term_before or 0)
        self.errors = int(self.result["errors"])
        self.spoofed = bool(sources)


def measure(group, kind, arguments, report, key_id):
    span = seconds(arguments.duration)
    closed = free_ports(3)
    before = resident_kib(group)
    at_group, at_nobody, peak = [], [], 0
    for _ in range(arguments.pairs):
        at_nobody.append(Run(group, kind, closed, span, key_id))
        at_group.append(Run(group, kind, group.ports, span, key_id))
        peak = max(peak, at_group[-1].peak_kib)
    ratio = median(mine.rate / base.rate for mine, base in zip(at_group, at_nobody))
    report.add(f"{kind}: PUT/s", median(run.rate for run in at_group), "1/s", "closed ports", ratio)
    report.add(f"{kind}: PUT/s at closed ports", median(run.rate for run in at_nobody), "1/s")
    report.add(f"{kind}: changes of term", sum(run.terms for run in at_group), "")
    report.add(f"{kind}: changes of term at closed ports", sum(run.terms for run in at_nobody), "")
    report.add(f"{kind}: errors of clients", sum(run.errors for run in at_group), "")
    total = {key: sum(run.flood[key] for run in at_group) for key in at_group[0].flood}
    floods = arguments.pairs * (span + 1.0)
    report.add(f"{kind}: packets a second", total["sent"] / floods, "1/s")
    base_sent = sum(run.flood["sent"] for run in at_nobody)
    report.add(f"{kind}: packets a second at closed ports", base_sent / floods, "1/s")
    more = sum(mine.spent - base.spent * mine.rate / base.rate for mine, base in zip(at_group, at_nobody))
    report.add(f"{kind}: replicas' time a packet", more / total["sent"] * 1e6, "us")
    report.add(f"{kind}: packets back a packet", total["back"] / total["sent"], "", "sent", total["back"] / total["sent"])
    report.add(f"{kind}: bytes back a byte", total["back_bytes"] / total["sent_bytes"], "")
    if kind == "disconnects" and not at_group[0].spoofed:
        print("disconnects: not root, so they came from the stranger's own address")
    time.sleep(seconds(arguments.calm))
    after = resident_kib(group)
    report.add(f"{kind}: memory before", before / 1024, "MiB")
    report.add(f"{kind}: memory at its peak", peak / 1024, "MiB")
    report.add(f"{kind}: memory afterwards", after / 1024, "MiB", "before", after / before)


def flood_of_puts(ports, span):
    """What was sent in the end."""
    results = multiprocessing.Queue()
    flood = multiprocessing.Process(target=stranger, args=("puts", ports, b"", [], span, results))
    flood.start()
    sent = results.get(timeout=span + 60)
    flood.join()
    return sent


def costs(group, directory, report, span):
    """What a packet costs a program that throws all away (drain.c), and the replicas of a group that nobody uses."""
    drain = f"{directory}/drain"
    source = pathlib.Path(__file__).with_name("drain.c")
    subprocess.run(["cc", "-O2", "-o", drain, str(source)], check=True)
    for pause in (50, 300):
        port = free_ports(1)[0]
        dropping = start([drain, str(port), str(pause)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        flood_of_puts([port], 4.0)
        told = json.loads(dropping.communicate()[0])
        report.add(f"drain, {pause} us between calls: a packet", told["us_a_packet"], "us")
        report.add(f"drain, {pause} us between calls: packets a call", told["a_call"], "")
    before = processor_seconds_of(group)
    sent = flood_of_puts(group.ports, span)["sent"]
    spent = processor_seconds_of(group) - before
    report.add("group without clients: replicas' time a packet", spent / sent * 1e6, "us")


def main():
    arguments = parser.parse_args()
    require_trine()
    kinds = arguments.only or KINDS
    for kind in kinds:
        if kind not in KINDS:
            fail(f"{kind!r} is no kind of flood: {', '.join(KINDS)}")
    report = Report("strangers")
    # The stranger has the last core for itself, in the baseline too. The scheduler else moves what it wakes to its core.
    os.sched_setaffinity(0, OTHER_CORES)
    with tempfile.TemporaryDirectory(prefix="trine-strangers-") as directory:
        key = f"{directory}/group.key"
        subprocess.run([str(TRINE), "key", "new", "--out", key], check=True, capture_output=True)
        with Group(key=key) as group:
            warm_up(group)
            if arguments.costs:
                costs(group, directory, report, seconds(arguments.duration))
                kinds = []
            for kind in kinds:
                measure(group, kind, arguments, report, member_key_id(key))
    if not report.write():
        fail("a goal is missed")


if __name__ == "__main__":
    main()
