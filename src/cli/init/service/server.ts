// Service with the operations of operations.ts. It uses only the standard library of Node.js 22.18 or later.
//
//     node services/typescript/server.ts [--listen 127.0.0.1:7171] [--fail PERCENT]
//
// Orlog sends each call with an idempotency key and repeats it until it receives a result. The service stores the result of each key, so
// that a repeated call has no second effect. A real service stores it in its database, in the transaction of the operation.
import { createServer } from "node:http";
import { parseArgs } from "node:util";

import { Declined, operations, type Json } from "./operations.ts";

type Response = { status: number; body: Json };

const results = new Map<string, Response>();

function execute(path: string, args: Json): Response {
  try {
    return { status: 200, body: operations[path](args) };
  } catch (error) {
    if (!(error instanceof Declined)) throw error;
    return { status: 422, body: { code: error.code, message: error.message } };
  }
}

function respond(path: string, key: string, args: Json): Response {
  if (!(path in operations)) {
    return { status: 404, body: { code: "unknown_operation", message: `no operation has the path ${path}` } };
  }
  const result = results.get(key) ?? execute(path, args);
  results.set(key, result);
  return result;
}

const { values } = parseArgs({
  options: {
    listen: { type: "string", default: "127.0.0.1:7171" },
    fail: { type: "string", default: "0" },
  },
});
const separator = values.listen.lastIndexOf(":");

createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const path = request.url ?? "/";
  const key = String(request.headers["idempotency-key"]);
  const { status, body } = Math.random() * 100 < Number(values.fail)
    ? { status: 503, body: { code: "unavailable", message: "the service is restarting" } }
    : respond(path, key, JSON.parse(text || "{}"));
  console.log(`${path} ${text} -> ${status} ${JSON.stringify(body)}`);
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}).listen(Number(values.listen.slice(separator + 1)), values.listen.slice(0, separator), () => {
  console.log(`listening on ${values.listen}`);
});
