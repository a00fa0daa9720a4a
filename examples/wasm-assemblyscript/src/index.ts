// The order saga: take the goods from the shelf, charge, ship; when something fails, undo what was done, the last first.
import { JSON } from "json-as";
import { Failure, Input, Orders, Outcome, give, ignore, refuse, text } from "./orlog";
export { alloc } from "./orlog";

const PAYMENT_MS: u64 = 30 * 60 * 1000;

@json
class Placed {
  orderId: string = "";
  total: i64 = 0;
}

@json
class Paid {
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

/** What is remembered. `at` is the step under way, `undo:` before it when it is being undone. */
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
  return give(`{
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
  const order = stateLength > 0 ? JSON.parse<Order>(text(state, stateLength)) : null;
  return give(on(order, JSON.parse<Input>(text(input, inputLength))));
}

function on(order: Order | null, input: Input): string {
  const orders = new Orders();
  if (order == null) return begin(input, orders);
  const outcome = input.outcome;
  if (outcome != null) return answered(order, outcome, orders);
  const event = input.event;
  if (event != null) return happened(order, event.type, orders);
  if (input.kind == "timer" && order.at == "charge") return turnBack(order, "timeout", "not paid in time", orders);
  if (input.kind == "cancel") {
    if (order.status != "running") return refuse("it no longer goes forward");
    order.status = "cancelled";
    return turnBack(order, "cancelled", input.cancel!.reason, orders);
  }
  if (input.kind == "retry") return ask(order, order.at, orders);
  return ignore("nothing to do");
}

function begin(input: Input, orders: Orders): string {
  const placed = JSON.parse<Placed>(input.event!.data.toString());
  const order = new Order();
  order.orderId = placed.orderId;
  order.total = placed.total;
  orders.reference = placed.orderId;
  return ask(order, "reserve", orders);
}

function happened(order: Order, type: string, orders: Orders): string {
  if (type == "StockReserved" && order.at == "reserve") return completed(order, "charge", orders);
  if (type == "StockRejected" && order.at == "reserve") return turnBack(order, "out_of_stock", "out of stock", orders);
  if (type == "Shipped" && order.at == "ship") return completed(order, "", orders);
  if (type == "ShippingFailed" && order.at == "ship") return turnBack(order, "not_shipped", "not shipped", orders);
  if (type == "StockReleased" && order.at == "undo:reserve") return undoNext(order, orders);
  return ignore("no step waits for it");
}

function answered(order: Order, outcome: Outcome, orders: Orders): string {
  const succeeded = outcome.verdict == "succeeded";
  if (outcome.tag == "charge" && succeeded) {
    order.paymentId = JSON.parse<Paid>(outcome.payload.toString()).paymentId;
    if (order.at == "charge") {
      orders.disarm("charge");
      return completed(order, "ship", orders);
    }
    // It came too late: it is undone with the rest, or at once when the rest is over.
    order.done.push("charge");
    if (order.at == "") return undoNext(order, orders);
    orders.status = "compensating";
    orders.waitFor(order.at == "undo:charge" ? "outcome" : "event", order.at);
    return orders.become(JSON.stringify(order));
  }
  if (outcome.tag != order.at) return ignore("no step waits for it");
  if (succeeded) return undoNext(order, orders);
  if (order.at.startsWith("undo:")) return stuck(order, outcome.failure, orders);
  const failure = outcome.failure;
  if (failure == null) return turnBack(order, "failed", "it failed", orders);
  return turnBack(order, failure.code, failure.message, orders);
}

function completed(order: Order, next: string, orders: Orders): string {
  order.done.push(order.at);
  if (next != "") return ask(order, next, orders);
  order.at = "";
  order.status = "completed";
  orders.status = "completed";
  orders.tell("OrderCompleted", JSON.stringify<OrderRef>({ orderId: order.orderId }));
  return orders.become(JSON.stringify(order));
}

function turnBack(order: Order, code: string, message: string, orders: Orders): string {
  if (order.at == "charge") orders.disarm("charge");
  if (order.status == "running") order.status = "failed";
  orders.fail(code, message);
  return undoNext(order, orders);
}

function undoNext(order: Order, orders: Orders): string {
  while (order.done.length > 0) {
    const step = order.done.pop();
    if (step != "ship") return ask(order, "undo:" + step, orders);
  }
  order.at = "";
  orders.status = order.status;
  orders.tell("OrderCancelled", JSON.stringify<OrderRef>({ orderId: order.orderId }));
  return orders.become(JSON.stringify(order));
}

function stuck(order: Order, failure: Failure | null, orders: Orders): string {
  orders.status = "stuck";
  orders.waitFor("operator", order.at);
  if (failure != null) orders.fail(failure.code, failure.message);
  return orders.become(JSON.stringify(order));
}

/** Asks for a step or for its undo. */
function ask(order: Order, step: string, orders: Orders): string {
  order.at = step;
  const orderRef = JSON.stringify<OrderRef>({ orderId: order.orderId });
  if (step == "reserve") orders.command(step, "inventory.ReserveStock", orderRef);
  else if (step == "charge") {
    orders.effect(step, "payments.charge", JSON.stringify<Charge>({ orderId: order.orderId, amount: order.total }));
    orders.arm(step, PAYMENT_MS);
  } else if (step == "ship") orders.command(step, "shipping.Ship", orderRef);
  else if (step == "undo:charge") {
    orders.effect(step, "payments.refund", JSON.stringify<Refund>({ paymentId: order.paymentId }));
  } else if (step == "undo:reserve") orders.command(step, "inventory.ReleaseStock", orderRef);
  orders.status = step.startsWith("undo:") ? "compensating" : "running";
  return orders.become(JSON.stringify(order));
}
