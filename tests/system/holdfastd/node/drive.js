// Drives a server with ioredis, for tests/system/holdfastd/test_clients.py.
//
//     node drive.js PACKAGE PROTOCOL PORT ask|pipeline < commands     a JSON array of arrays of words
//     node drive.js PACKAGE PROTOCOL PORT subscribe NAME              prints what comes, until its input ends
//
// Over TLS if HF_TLS_CA names the authority's file.
//
// Prints one line of JSON per answer: {"value": ...}, or {"error": "..."}.
"use strict";

const [package_, protocol, port, what, name] = process.argv.slice(2);
const { Redis } = require(package_);
const options = { port: Number(port), host: "127.0.0.1", retryStrategy: null };
if (protocol === "3") Object.assign(options, { protocol: 3, replyMapping: "resp3" });
if (process.env.HF_TLS_CA) options.tls = { ca: require("fs").readFileSync(process.env.HF_TLS_CA) };
const redis = new Redis(options);

function say(value) {
    const plain = (key, item) => (item instanceof Map ? Object.fromEntries(item) : item);
    process.stdout.write(JSON.stringify(value, plain) + "\n");
}

function readInput() {
    return JSON.parse(require("fs").readFileSync(0, "utf8"));
}

async function ask(commands) {
    for (const words of commands) {
        try {
            say({ value: await redis.call(...words) });
        } catch (error) {
            say({ error: error.message });
        }
    }
}

async function pipeline(commands) {
    const pipe = redis.pipeline();
    for (const words of commands) pipe.call(...words);
    for (const [error, value] of await pipe.exec()) say(error ? { error: error.message } : { value });
}

async function subscribe() {
    redis.on("message", (channel, message) => say({ value: [channel, message] }));
    say({ value: await redis.subscribe(name) });
    process.stdin.resume();
    await new Promise((resolve) => process.stdin.on("end", resolve));
    say({ value: await redis.unsubscribe(name) });
}

redis.on("error", (error) => {
    say({ error: "connection: " + error.message });
    process.exit(1);
});
// "ready" comes after the ready check: ioredis has read INFO by then.
redis.on("ready", async () => {
    if (what === "subscribe") await subscribe();
    else await { ask, pipeline }[what](readInput());
    redis.disconnect();
});
