// Uses a node through the generated types of its API description.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

declare const process: { argv: string[] };
type Instance = components["schemas"]["InstanceSummary"];
type Event = components["schemas"]["CloudEvent"];

const [, , baseUrl = "", token] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });

function expect(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(message);
}

// The event starts an instance.
const event: Event = {
  specversion: "1.0",
  id: "e-1",
  source: "urn:shop",
  type: "OrderPlaced",
  data: { orderId: "ts-1" },
};
const published = await client.POST("/v1/events", { body: event });
expect(published.data?.accepted[0]?.matched === 1, `publish: ${JSON.stringify(published.error)}`);
const repeated = await client.POST("/v1/events", { body: [event] });
expect(repeated.data?.accepted[0]?.duplicate === true, "the second event is a duplicate");

// The second instance starts when the response arrives, and its task is open.
const started = await client.POST("/v1/sagas/{saga}", {
  params: { path: { saga: "order" } },
  body: { orderId: "ts-2" },
});
expect(started.data?.status === "running", `start: ${JSON.stringify(started.error)}`);
const tasks = await client.GET("/v1/tasks", { params: { query: { saga: "order", correlation: "ts-2" } } });
const task = tasks.data?.items[0];
expect(task, `tasks: ${JSON.stringify(tasks)}`);
const completed = await client.POST("/v1/tasks/{id}/complete", {
  params: { path: { id: task.id } },
  body: { outcome: "Approved", user: "ann", data: { note: "fine" } },
});
expect(completed.response.ok, `complete: ${JSON.stringify(completed.error)}`);
const result = await client.GET("/v1/sagas/{saga}/{correlation}/result", {
  params: { path: { saga: "order", correlation: "ts-2" }, query: { wait: "PT30S" } },
});
expect(result.data?.result?.event === "OrderApproved", `result: ${JSON.stringify(result)}`);

// A control request without a body.
await client.POST("/v1/sagas/{saga}", { params: { path: { saga: "order" } }, body: { orderId: "ts-3" } });
const cancelled = await client.POST("/v1/sagas/{saga}/{correlation}/cancel", {
  params: { path: { saga: "order", correlation: "ts-3" } },
});
expect(cancelled.data?.status === "cancelled", `cancel: ${JSON.stringify(cancelled.error)}`);

const page = await client.GET("/v1/sagas", { params: { query: { saga: "order", prefix: "ts-" } } });
const instances: Instance[] = page.data?.items ?? [];
expect(instances.some((instance) => instance.correlation === "ts-2" && instance.status === "completed"), JSON.stringify(page));

// An error is a problem with a code.
const missing = await client.GET("/v1/sagas/{saga}/{correlation}", {
  params: { path: { saga: "order", correlation: "none" } },
});
expect(missing.error?.code === "OR0011", JSON.stringify(missing.error));
console.log("used");
