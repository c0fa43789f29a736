// Writes that are applied once, with ioredis: its own retries, several replicas, and calls that share a session.
//
//     const once = await Once.open(new Replicas([7101, 7102, 7103]));
//     const visits = await once.do("INCR", "visits");
"use strict";

const { Redis, ReplyError } = require("ioredis");
const LIMIT = 30000; // milliseconds

// No replica answered in time. `Once.ask` with this sequence and command gets the answer later.
class NoAnswer extends Error {
  constructor(sequence, command, cause) {
    super(`no answer to ${command[0]}, sequence ${sequence}`, { cause });
    Object.assign(this, { sequence, command });
  }
}

// The group has forgotten the session. A command without an answer was applied once or not at all.
class SessionLost extends Error {}

// A client for each replica's port. Commands go to one replica until it fails, and then to the next.
class Replicas {
  constructor(ports, options = {}) {
    const retryStrategy = (times) => Math.min(10 * 2 ** times, 200);
    // ioredis repeats what has no answer on its next connections, as often as this says.
    const own = { maxRetriesPerRequest: 3, retryStrategy, commandTimeout: 5000, lazyConnect: true };
    this.clients = ports.map((port) => new Redis({ port, ...own, ...options }));
    // Whoever waits for an answer gets the error, too.
    for (const client of this.clients) client.on("error", () => {});
    this.current = 0;
  }

  // The answer to a command. After `limit` milliseconds no further replica is tried.
  async ask(limit, name, ...words) {
    const end = Date.now() + limit;
    for (;;) {
      const current = this.current;
      try {
        return await this.clients[current].call(name, ...words);
      } catch (error) {
        const isAnswer = error instanceof ReplyError && !/^(CLUSTERDOWN|UNKNOWNOUTCOME) /.test(error.message);
        if (isAnswer) throw error;
        // Unless another call has moved on.
        if (this.current === current) this.current = (current + 1) % this.clients.length;
        if (Date.now() >= end) throw new Error(`no replica answered within ${limit} ms`, { cause: error });
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    }
  }

  close() {
    for (const client of this.clients) client.disconnect();
  }
}

// A session. Up to `window` commands are under way, and further ones wait.
class Once {
  static async open(replicas, limit = LIMIT) {
    const [token, , window] = await replicas.ask(limit, "TRINE.SESSION");
    return Object.assign(new Once(), { replicas, limit, token, window, next: 1, unanswered: new Set(), waiting: [] });
  }

  // Applies one write command once, and returns its answer.
  async do(...command) {
    const end = Date.now() + LIMIT;
    while (this.next >= this.lowest() + this.window) {
      const lowest = this.lowest();
      if (Date.now() >= end) throw new Error(`sequence ${lowest} has no answer: ask again, or open another session`);
      await new Promise((resolve) => {
        this.waiting.push(resolve);
        setTimeout(resolve, LIMIT).unref();
      });
    }
    const sequence = this.next++;
    this.unanswered.add(sequence);
    return this.ask(sequence, ...command);
  }

  // Asks for the answer to a sequence as often as necessary: the command is still applied once.
  async ask(sequence, ...command) {
    let answer;
    try {
      answer = await this.replicas.ask(this.limit, "TRINE.DO", this.token, sequence, this.lowest(), ...command);
    } catch (error) {
      if (!(error instanceof ReplyError)) throw new NoAnswer(sequence, command, error);
      this.answered(sequence);
      throw error.message.startsWith("SESSIONLOST ") ? new SessionLost(error.message) : error;
    }
    this.answered(sequence);
    return answer;
  }

  close() {
    return this.replicas.ask(this.limit, "TRINE.SESSION", "CLOSE", this.token);
  }

  lowest() {
    return this.unanswered.size ? Math.min(...this.unanswered) : this.next;
  }

  answered(sequence) {
    this.unanswered.delete(sequence);
    for (const resume of this.waiting.splice(0)) resume();
  }
}

module.exports = { NoAnswer, Once, Replicas, SessionLost };
