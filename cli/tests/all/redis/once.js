// Callers increment a key with ioredis until standard input ends, and say as JSON what came of it.
//
//     node once.js once|plain KEY PORT...
//
// `once` increments with TRINE.DO as in docs/examples/once.js, and asks again for each answer that it did not get. `plain` sends INCR
// to the first port, with the retries that ioredis has by default.
"use strict";

const { Redis } = require("ioredis");
const { NoAnswer, Once, Replicas } = require("../../../../docs/examples/once.js");

const CALLERS = 8;
const PATIENCE_MS = 60000;

async function increments(way, key, ports, replicas) {
  if (way === "plain") {
    const client = new Redis({ port: ports[0] });
    client.on("error", () => {});
    return { increment: () => client.incr(key), close: () => client.disconnect() };
  }
  const session = await Once.open(replicas);
  // No second replica is tried within a call: so some calls end without an answer.
  session.limit = 0;
  return { increment: () => session.do("INCR", key), again: (missed) => askAgain(session, missed), close: () => {} };
}

async function askAgain(session, missed) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await session.ask(missed.sequence, ...missed.command);
    } catch (error) {
      if (!(error instanceof NoAnswer) || Date.now() >= end) throw error;
    }
  }
}

async function main(way, key, ...ports) {
  const replicas = new Replicas(ports);
  const { increment, again, close } = await increments(way, key, ports, replicas);
  const [answers, askedAgain] = [[], []];
  let [ended, unanswered] = [false, 0];
  process.stdin.on("end", () => (ended = true)).resume();

  async function work() {
    while (!ended) {
      try {
        answers.push(await increment());
      } catch (error) {
        if (again && !(error instanceof NoAnswer)) throw error;
        unanswered += 1;
        if (again) askedAgain.push(await again(error));
      }
    }
  }

  await Promise.all(Array.from({ length: CALLERS }, work));
  const counted = Number(await replicas.ask(30000, "GET", key));
  const distinct = new Set([...answers, ...askedAgain]).size;
  const counts = { answered: answers.length, unanswered, asked_again: askedAgain.length, distinct, counted };
  console.log(JSON.stringify(counts));
  close();
  replicas.close();
}

main(...process.argv.slice(2));
