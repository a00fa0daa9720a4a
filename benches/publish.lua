-- Load of `wrk` for the benchmark of publishing: each request publishes one event. docs/benchmarks.md describes it.
local headers = { ["content-type"] = "application/cloudevents+json", ["x-tenant-id"] = "acme" }
local token = os.getenv("TOKEN")
if token then headers["authorization"] = "Bearer " .. token end

local event = '{"specversion":"1.0","id":"%s","source":"shop","type":"order.placed","data":{"orderId":"%s","amount":7,"currency":"EUR"}}'
local start, count = nil, 0

function init()
  math.randomseed(os.time())
  start = math.random(1, 1e9)
end

function request()
  count = count + 1
  local id = start .. "-" .. count
  return wrk.format("POST", "/v1/events", headers, event:format(id, id))
end
