"""Threads increment a key with redis-py until standard input ends, and say as JSON what came of it.

    once.py once|plain KEY PORT...

`once` increments with TRINE.DO as in docs/examples/once.py, and asks again for each answer that it did not get. `plain` sends INCR to
the first port, with the retries that redis-py has by default.
"""

import json
import pathlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "docs/examples"))
from once import NoAnswer, Once, Replicas

THREADS = 8
PATIENCE_SECONDS = 60


class Counts:
    """The answers that each way gave. Threads append to lists, which needs no lock."""

    def __init__(self, key):
        self.key, self.answers, self.unanswered, self.again = key, [], [], []

    def once(self, session):
        try:
            self.answers.append(session.do("INCR", self.key))
        except NoAnswer as missed:
            self.unanswered.append(missed.sequence)
            self.again.append(ask_again(session, missed))

    def plain(self, client):
        try:
            self.answers.append(client.incr(self.key))
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
            self.unanswered.append(str(error))


def ask_again(session, missed):
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return session.ask(missed.sequence, *missed.command)
        except NoAnswer:
            if time.monotonic() >= end:
                raise


def main(way, key, *ports):
    counts, ended, replicas = Counts(key), threading.Event(), Replicas(ports)
    if way == "once":
        # No second replica is tried within a call: so some calls end without an answer.
        session = Once(replicas)
        session.limit = 0
        increment = lambda: counts.once(session)
    else:
        client = redis.Redis(port=int(ports[0]))
        increment = lambda: counts.plain(client)

    def work():
        while not ended.is_set():
            increment()

    with ThreadPoolExecutor(THREADS) as threads:
        working = [threads.submit(work) for _ in range(THREADS)]
        sys.stdin.read()
        ended.set()
    for thread in working:
        thread.result()
    said = {
        "answered": len(counts.answers),
        "unanswered": len(counts.unanswered),
        "asked_again": len(counts.again),
        "distinct": len(set(counts.answers + counts.again)),
        "counted": int(replicas.ask(30, "GET", key) or 0),
    }
    print(json.dumps(said))


main(*sys.argv[1:])
