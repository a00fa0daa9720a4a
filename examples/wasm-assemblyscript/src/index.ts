// Order saga: reserves stock, charges the customer and ships. On a failure it compensates in reverse order.
import { JSON } from "json-as";
import { Failure, Input, TransitionBuilder, WorkResult, ignore, readText, reject, returnText } from "./orlog";
export { alloc } from "./orlog";

const PAYMENT_MS: u64 = 30 * 60 * 1000;
const COMPENSATE: string = "compensate:";

@json
class OrderPlaced {
  orderId: string = "";
  total: i64 = 0;
}

@json
class ChargeResult {
  paymentId: string = "";
}

@json
class OrderRef {
  orderId: string = "";
}

@json
class Charge {
  orderId: string = "";
  amount: i64 = 0;
}

@json
class Refund {
  paymentId: string = "";
}

/** State of an order. `at` is the tag of the requested action, with the prefix `compensate:` for a compensation; empty after the end. */
@json
class Order {
  orderId: string = "";
  total: i64 = 0;
  paymentId: string = "";
  at: string = "";
  done: string[] = [];
  status: string = "running";
}

export function manifest(): u64 {
  return returnText(`{
    "saga": "order", "version": 1,
    "events": [
      {"type": "OrderPlaced", "starts": true, "correlate": "orderId"},
      {"type": "StockReserved", "correlate": "orderId"},
      {"type": "StockRejected", "correlate": "orderId"},
      {"type": "StockReleased", "correlate": "orderId"},
      {"type": "Shipped", "correlate": "orderId"},
      {"type": "ShippingFailed", "correlate": "orderId"}
    ],
    "effects": ["payments.charge", "payments.refund"],
    "commands": ["inventory.ReserveStock", "inventory.ReleaseStock", "shipping.Ship"]
  }`);
}

export function apply(state: usize, stateLength: i32, input: usize, inputLength: i32): u64 {
  const order = stateLength > 0 ? JSON.parse<Order>(readText(state, stateLength)) : null;
  return returnText(handle(order, JSON.parse<Input>(readText(input, inputLength))));
}

function handle(order: Order | null, input: Input): string {
  const transition = new TransitionBuilder();
  if (order == null) return start(input, transition);
  const result = input.workResult;
  if (result != null) return onWorkResult(order, result, transition);
  const event = input.event;
  if (event != null) return onEvent(order, event.type, transition);
  if (input.kind == "timer" && order.at == "charge") return startCompensation(order, "timeout", "not paid in time", transition);
  if (input.kind == "cancel") {
    if (order.status != "running") return reject("the saga is already compensating");
    order.status = "cancelled";
    return startCompensation(order, "cancelled", input.cancel!.reason, transition);
  }
  if (input.kind == "retry") return request(order, order.at, transition);
  return ignore("the input has no effect");
}

function start(input: Input, transition: TransitionBuilder): string {
  const placed = JSON.parse<OrderPlaced>(input.event!.data.toString());
  const order = new Order();
  order.orderId = placed.orderId;
  order.total = placed.total;
  transition.reference = placed.orderId;
  return request(order, "reserve", transition);
}

function onEvent(order: Order, type: string, transition: TransitionBuilder): string {
  if (type == "StockReserved" && order.at == "reserve") return completed(order, "charge", transition);
  if (type == "StockRejected" && order.at == "reserve") return startCompensation(order, "out_of_stock", "out of stock", transition);
  if (type == "Shipped" && order.at == "ship") return completed(order, "", transition);
  if (type == "ShippingFailed" && order.at == "ship") return startCompensation(order, "not_shipped", "not shipped", transition);
  if (type == "StockReleased" && order.at == "compensate:reserve") return compensateNext(order, transition);
  return ignore("no step awaits this input");
}

function onWorkResult(order: Order, result: WorkResult, transition: TransitionBuilder): string {
  const succeeded = result.outcome == "succeeded";
  if (result.tag == "charge" && succeeded) {
    order.paymentId = JSON.parse<ChargeResult>(result.payload.toString()).paymentId;
    if (order.at == "charge") {
      transition.cancelTimer("charge");
      return completed(order, "ship", transition);
    }
    // A late charge is compensated with the other steps, or immediately after the end.
    order.done.push("charge");
    if (order.at == "") return compensateNext(order, transition);
    transition.status = "compensating";
    transition.waitFor(order.at == "compensate:charge" ? "workResult" : "event", order.at);
    return transition.commit(JSON.stringify(order));
  }
  if (result.tag != order.at) return ignore("no step awaits this input");
  if (succeeded) return compensateNext(order, transition);
  if (order.at.startsWith(COMPENSATE)) return stuck(order, result.failure, transition);
  const failure = result.failure;
  if (failure == null) return startCompensation(order, "failed", "the work failed", transition);
  return startCompensation(order, failure.code, failure.message, transition);
}

function completed(order: Order, next: string, transition: TransitionBuilder): string {
  order.done.push(order.at);
  if (next != "") return request(order, next, transition);
  order.at = "";
  order.status = "completed";
  transition.status = "completed";
  transition.emit("OrderCompleted", JSON.stringify<OrderRef>({ orderId: order.orderId }));
  return transition.commit(JSON.stringify(order));
}

function startCompensation(order: Order, code: string, message: string, transition: TransitionBuilder): string {
  if (order.at == "charge") transition.cancelTimer("charge");
  if (order.status == "running") order.status = "failed";
  transition.fail(code, message);
  return compensateNext(order, transition);
}

function compensateNext(order: Order, transition: TransitionBuilder): string {
  while (order.done.length > 0) {
    const step = order.done.pop();
    if (step != "ship") return request(order, COMPENSATE + step, transition);
  }
  order.at = "";
  transition.status = order.status;
  transition.emit("OrderCancelled", JSON.stringify<OrderRef>({ orderId: order.orderId }));
  return transition.commit(JSON.stringify(order));
}

function stuck(order: Order, failure: Failure | null, transition: TransitionBuilder): string {
  transition.status = "stuck";
  transition.waitFor("operator", order.at);
  if (failure != null) transition.fail(failure.code, failure.message);
  return transition.commit(JSON.stringify(order));
}

/** Requests the action of a step, or its compensation. */
function request(order: Order, tag: string, transition: TransitionBuilder): string {
  order.at = tag;
  const orderRef = JSON.stringify<OrderRef>({ orderId: order.orderId });
  if (tag == "reserve") transition.command(tag, "inventory.ReserveStock", orderRef);
  else if (tag == "charge") {
    transition.effect(tag, "payments.charge", JSON.stringify<Charge>({ orderId: order.orderId, amount: order.total }));
    transition.armTimer(tag, PAYMENT_MS);
  } else if (tag == "ship") transition.command(tag, "shipping.Ship", orderRef);
  else if (tag == "compensate:charge") {
    transition.effect(tag, "payments.refund", JSON.stringify<Refund>({ paymentId: order.paymentId }));
  } else if (tag == "compensate:reserve") transition.command(tag, "inventory.ReleaseStock", orderRef);
  transition.status = tag.startsWith(COMPENSATE) ? "compensating" : "running";
  return transition.commit(JSON.stringify(order));
}
