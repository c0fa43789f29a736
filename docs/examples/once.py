"""Writes that are applied once, with redis-py: its own retries, several replicas, and threads that share a session.

    once = Once(Replicas([7101, 7102, 7103]))
    visits = once.do("INCR", "visits")
"""

import threading
import time

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ClusterDownError, ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

LIMIT = 30  # seconds

class NoAnswer(Exception):
    """No replica answered in time. `Once.ask` with this sequence and command gets the answer later."""

    def __init__(self, sequence, command):
        super().__init__(f"no answer to {command[0]}, sequence {sequence}")
        self.sequence, self.command = sequence, command


class SessionLost(Exception):
    """The group has forgotten the session. A command without an answer was applied once or not at all."""


class Replicas:
    """A client for each replica's port. Commands go to one replica until it fails, and then to the next."""

    def __init__(self, ports, host="127.0.0.1", **options):
        retry = Retry(ExponentialBackoff(cap=0.2, base=0.01), 3, (ConnectionError, TimeoutError))
        # Each client has a connection pool, and repeats a command on a new connection by itself.
        self.clients = [Redis(host, port, retry=retry, socket_timeout=5, **options) for port in ports]
        self.current = 0

    def ask(self, limit, *command):
        """The answer to a command. After `limit` seconds no further replica is tried."""
        end = time.monotonic() + limit
        while True:
            current = self.current
            try:
                return self.clients[current].execute_command(*command)
            except (ConnectionError, TimeoutError, ClusterDownError) as error:
                failure = error
            except ResponseError as error:
                if not str(error).startswith("UNKNOWNOUTCOME"):
                    raise
                failure = error
            if self.current == current:  # no other thread has moved on
                self.current = (current + 1) % len(self.clients)
            if time.monotonic() >= end:
                raise TimeoutError(f"no replica answered within {limit} s") from failure
            time.sleep(0.01)


class Once:
    """A session. Threads may share it: up to `window` commands are under way, and further ones wait."""

    def __init__(self, replicas, limit=LIMIT):
        self.replicas, self.limit = replicas, limit
        self.token, _, self.window = replicas.ask(limit, "TRINE.SESSION")
        self.next, self.unanswered = 1, set()
        self.changed = threading.Condition()

    def do(self, *command):
        """Applies one write command once, and returns its answer."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.next < self._lowest() + self.window, LIMIT):
                raise RuntimeError(f"sequence {self._lowest()} has no answer: ask again, or open another session")
            sequence, self.next = self.next, self.next + 1
            self.unanswered.add(sequence)
        return self.ask(sequence, *command)

    def ask(self, sequence, *command):
        """Asks for the answer to a sequence as often as necessary: the command is still applied once."""
        with self.changed:
            lowest = self._lowest()
        try:
            answer = self.replicas.ask(self.limit, "TRINE.DO", self.token, sequence, lowest, *command)
        except TimeoutError as error:
            raise NoAnswer(sequence, command) from error
        except ResponseError as error:
            self._answered(sequence)
            raise SessionLost(str(error)) if str(error).startswith("SESSIONLOST") else error
        self._answered(sequence)
        return answer

    def close(self):
        self.replicas.ask(self.limit, "TRINE.SESSION", "CLOSE", self.token)

    def _lowest(self):
        return min(self.unanswered, default=self.next)

    def _answered(self, sequence):
        with self.changed:
            self.unanswered.discard(sequence)
            self.changed.notify_all()
