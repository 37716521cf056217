// redlock.js: cycles with the packages redlock and ioredis of npm, for clients.py. Prints an object of JSON: of each cycle in the time
// that counts when it asked and when it had the lock, in seconds of one clock; and what failed.
"use strict";

const { createRequire } = require("module");
const path = require("path");

const told = JSON.parse(process.argv[2]);
const installed = createRequire(path.join(told.modules, "any.js"));
const Redis = installed("ioredis");
const redlock = installed("redlock");
const Redlock = redlock.default || redlock;
const TTL_MS = 30000;
const RETRY_MS = 10;

const now = () => Number(process.hrtime.bigint()) / 1e9;
const servers = told.ports.map((port) => new Redis(port, "127.0.0.1"));
// Its defaults, but for how often who waits may ask again: ten times are not enough at a lock that many want.
const locks = new Redlock(servers, { retryCount: -1 });
const begin = now() + told.warm;
const end = begin + told.seconds;
const times = [];
let failures = 0;
let last = "";

locks.on("error", () => {});

async function client(name) {
    while (now() < end) {
        const asked = now();
        try {
            const lock = await locks.acquire([name], TTL_MS);
            const had = now();
            await lock.release();
            if (had >= begin && had < end) times.push([asked, had]);
        } catch (error) {
            failures++;
            last = String(error.message);
            await new Promise((resume) => setTimeout(resume, RETRY_MS));
        }
    }
}

Promise.race([
    Promise.all(told.names.map(client)),
    new Promise((resume) => setTimeout(resume, 1000 * (told.warm + told.seconds + 1))),
]).then(() => {
    process.stdout.write(JSON.stringify({ times, failures, last }), () => process.exit(0));
});
