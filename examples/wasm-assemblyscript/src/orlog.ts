// What a saga needs to speak with the runner: the input as classes, the answer as orders, memory for both.
import { JSON } from "json-as";

/** Which instance, and when. */
@json
export class Context {
  tenant: string = "";
  saga: string = "";
  correlation: string = "";
  /** The state version that this transition leads to. */
  version: u64 = 0;
  /** Milliseconds since 1970; there is no other clock. */
  now: i64 = 0;
}

@json
export class Event {
  id: string = "";
  type: string = "";
  source: string = "";
  subject: string | null = null;
  time: i64 = 0;
  schemaVersion: u32 = 1;
  /** JSON; parse it into a class of your own. */
  data: JSON.Raw = new JSON.Raw("null");
}

@json
export class Failure {
  code: string = "";
  message: string = "";
}

/** What became of work; `verdict` is accepted, succeeded, failed or timedOut. */
@json
export class Outcome {
  tag: string = "";
  verdict: string = "";
  event: string | null = null;
  payload: JSON.Raw = new JSON.Raw("null");
  failure: Failure | null = null;
}

@json
export class Timer {
  name: string = "";
}

@json
export class Cancel {
  reason: string = "";
}

/** What happened; `kind` says which of the fields is there: event, outcome, timer, cancel; retry, skip, forceComplete have none. */
@json
export class Input {
  kind: string = "";
  context: Context = new Context();
  event: Event | null = null;
  outcome: Outcome | null = null;
  timer: Timer | null = null;
  cancel: Cancel | null = null;
}

/** Takes down what is to be done. Payloads are JSON, as `JSON.stringify` gives it. */
export class Orders {
  status: string = "running";
  reference: string = "";
  note: string = "";
  private work: string[] = [];
  private timers: string[] = [];
  private waits: string[] = [];
  private failure: string = "";

  /** Asks the aggregate of the correlation id; its answer is an event. `name` is aggregate.Command. */
  command(tag: string, name: string, payload: string): void {
    this.work.push(`{"command":{"tag":${quote(tag)},"name":${quote(name)},"payload":${payload}}}`);
  }

  /** Asks for an effect; its outcome comes back under the tag. */
  effect(tag: string, name: string, payload: string): void {
    this.work.push(`{"effect":{"tag":${quote(tag)},"name":${quote(name)},"payload":${payload}}}`);
    this.waitFor("outcome", tag);
  }

  /** Tells everybody that something happened. */
  tell(type: string, data: string): void {
    this.work.push(`{"fact":{"type":${quote(type)},"data":${data}}}`);
  }

  arm(name: string, afterMs: u64): void {
    this.timers.push(`{"arm":{"name":${quote(name)},"afterMs":${afterMs}}}`);
  }

  disarm(name: string): void {
    this.timers.push(`{"cancel":{"name":${quote(name)}}}`);
  }

  /** For people: `kind` is event, outcome, timer or operator. */
  waitFor(kind: string, name: string): void {
    this.waits.push(`{"kind":${quote(kind)},"name":${quote(name)}}`);
  }

  fail(code: string, message: string): void {
    this.failure = `{"code":${quote(code)},"message":${quote(message)}}`;
  }

  /** The answer that makes `state`, which is JSON, the state of the instance and carries the orders out. */
  become(state: string): string {
    let answer = `{"state":${state},"status":${quote(this.status)},"work":[${this.work.join(",")}]`;
    answer += `,"timers":[${this.timers.join(",")}],"waits":[${this.waits.join(",")}]`;
    if (this.reference != "") answer += `,"reference":${quote(this.reference)}`;
    if (this.failure != "") answer += `,"failure":${this.failure}`;
    if (this.note != "") answer += `,"note":${quote(this.note)}`;
    return answer + "}";
  }
}

/** Nothing changes, and that is right. */
export function ignore(why: string): string {
  return `{"ignored":${quote(why)}}`;
}

/** The status forbids it; the operator is told why. */
export function refuse(why: string): string {
  return `{"refused":${quote(why)}}`;
}

/** The input cannot be applied; it becomes a dead letter. */
export function reject(why: string): string {
  return `{"rejected":${quote(why)}}`;
}

function quote(text: string): string {
  return JSON.stringify<string>(text);
}

/** Memory for what the runner hands over. Every transition has an instance of its own, so nothing is freed. */
export function alloc(length: i32): usize {
  return heap.alloc(length);
}

/** The text that the runner handed over. */
export function text(pointer: usize, length: i32): string {
  return String.UTF8.decodeUnsafe(pointer, length);
}

/** A text for the runner: pointer << 32 | length. */
export function give(answer: string): u64 {
  const bytes = String.UTF8.encode(answer);
  return ((changetype<usize>(bytes) as u64) << 32) | (bytes.byteLength as u64);
}

/** In the place of an import: what goes wrong traps, and the runner pauses the instance. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}
