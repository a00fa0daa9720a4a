// Worker that claims jobs, sends heartbeats and reports results. It uses only the standard library of Node.js 22.18 or later.
//
//     ORLOG_TOKEN_FILE=data/session-token node workers/typescript/worker.ts
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

type Json = Record<string, any>;
type Log = (line: string) => Promise<Json | null>;

const url = process.env.ORLOG_URL ?? "http://127.0.0.1:7070";
const tokenFile = process.env.ORLOG_TOKEN_FILE;

/** Final failure: the job is not repeated, and the saga is compensated. */
class Failed extends Error {
  code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** Request that the node rejected. */
class Rejected extends Error {
  status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

// Jobs by effect. A job can be delivered again, also to another worker: `job.job` is its idempotency key.
const jobs: Record<string, (payload: Json, log: Log) => Promise<Json>> = {
  "video.probe": async ({ source }) => {
    if (!source.endsWith(".mp4")) throw new Failed("unsupported_format", `${source} is not an MP4 file`);
    return { seconds: 90 };
  },
  "video.transcode": async ({ source, format }, log) => {
    for (const percent of [0, 50, 100]) await log(`${source}: ${percent} %`);
    return { file: `${source}.${format}` };
  },
  "video.delete": async () => ({}),
};

async function post(path: string, body: Json): Promise<Json | null> {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (tokenFile) headers.authorization = `Bearer ${readFileSync(tokenFile, "utf8").trim()}`;
  const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Rejected(response.status, `${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

async function execute(job: Json, log: Log): Promise<Json> {
  try {
    return { result: "succeeded", payload: await jobs[job.effect](job.payload, log) };
  } catch (error) {
    return error instanceof Failed
      ? { result: "failed", code: error.code, message: error.message }
      : { result: "retry", code: "typescript", message: String(error) }; // the job is repeated
  }
}

/** Sends the result until the node has stored it: the work is done, and must not be repeated. */
async function report(path: string, result: Json) {
  while (true) {
    try {
      await post(path, result);
      return;
    } catch (error) {
      console.error(`worker: result: ${error}`);
      if (error instanceof Rejected && error.status < 500 && error.status !== 429) return;
      await sleep(1000);
    }
  }
}

async function run(job: Json) {
  const path = `/v1/work/jobs/${job.job}`;
  const claim = { claim: job.claim };
  const heartbeat = () => post(`${path}/heartbeat`, claim).catch(console.error);
  const timer = setInterval(heartbeat, job.heartbeat_interval_seconds * 1000);
  const result = await execute(job, (line) => post(`${path}/logs`, { ...claim, log: [line] }));
  clearInterval(timer);
  console.log(`${job.effect} ${job.saga}/${job.correlation}: ${JSON.stringify(result)}`);
  await report(`${path}/result`, { ...claim, ...result });
}

const claim = { effects: Object.keys(jobs), worker: `${hostname()}-${process.pid}` };
while (true) {
  try {
    for (const job of (await post("/v1/work/claim", claim))?.jobs) await run(job);
  } catch (error) {
    console.error(`worker: ${error}`);
    await sleep(1000);
  }
}
