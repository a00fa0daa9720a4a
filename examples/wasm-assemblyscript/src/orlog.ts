// Interface to Orlog: input classes, the transition builder, and the memory for both.
import { JSON } from "json-as";

/** Instance and time of the transition. */
@json
export class Context {
  tenant: string = "";
  saga: string = "";
  correlation: string = "";
  /** State version after this transition. */
  version: u64 = 0;
  /** Time of the transition, in milliseconds since 1970. It is the only clock. */
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

/** Result of a work item; `outcome` is accepted, succeeded, failed or timedOut. */
@json
export class WorkResult {
  tag: string = "";
  outcome: string = "";
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

/** Input of a transition. `kind` names the field that is present: event, workResult, timer or cancel; retry, skip and forceComplete have no field. */
@json
export class Input {
  kind: string = "";
  context: Context = new Context();
  event: Event | null = null;
  workResult: WorkResult | null = null;
  timer: Timer | null = null;
  cancel: Cancel | null = null;
}

/** Collects the actions of a transition. Payloads are JSON, as `JSON.stringify` returns it. */
export class TransitionBuilder {
  status: string = "running";
  reference: string = "";
  note: string = "";
  private work: string[] = [];
  private timers: string[] = [];
  private waits: string[] = [];
  private failure: string = "";

  /** Sends a command to the aggregate with the correlation id; its result is an event. `name` is aggregate.Command. */
  command(tag: string, name: string, payload: string): void {
    this.work.push(`{"command":{"tag":${quote(tag)},"name":${quote(name)},"payload":${payload}}}`);
  }

  /** Executes an effect; its result has the tag. */
  effect(tag: string, name: string, payload: string): void {
    this.work.push(`{"effect":{"tag":${quote(tag)},"name":${quote(name)},"payload":${payload}}}`);
    this.waitFor("workResult", tag);
  }

  /** Emits a fact. */
  emit(type: string, data: string): void {
    this.work.push(`{"fact":{"type":${quote(type)},"data":${data}}}`);
  }

  /** Arms a timer that is due this many milliseconds after the transition. */
  armTimer(name: string, afterMs: u64): void {
    this.timers.push(`{"arm":{"name":${quote(name)},"afterMs":${afterMs}}}`);
  }

  /** Cancels a timer. */
  cancelTimer(name: string): void {
    this.timers.push(`{"cancel":{"name":${quote(name)}}}`);
  }

  /** Adds a displayed wait; `kind` is event, workResult, timer or operator. */
  waitFor(kind: string, name: string): void {
    this.waits.push(`{"kind":${quote(kind)},"name":${quote(name)}}`);
  }

  /** Sets the failure of the instance. */
  fail(code: string, message: string): void {
    this.failure = `{"code":${quote(code)},"message":${quote(message)}}`;
  }

  /** Returns the output of the transition to `state`, which is JSON. */
  commit(state: string): string {
    let output = `{"state":${state},"status":${quote(this.status)},"work":[${this.work.join(",")}]`;
    output += `,"timers":[${this.timers.join(",")}],"waits":[${this.waits.join(",")}]`;
    if (this.reference != "") output += `,"reference":${quote(this.reference)}`;
    if (this.failure != "") output += `,"failure":${this.failure}`;
    if (this.note != "") output += `,"note":${quote(this.note)}`;
    return output + "}";
  }
}

/** Returns the output for an input without effect; the reason is for the log. */
export function ignore(reason: string): string {
  return `{"ignored":${quote(reason)}}`;
}

/** Returns the output for an input that the status does not allow; the reason is for the operator. */
export function reject(reason: string): string {
  return `{"rejected":${quote(reason)}}`;
}

/** Returns the output for an input that cannot be applied; it becomes a dead letter with this reason. */
export function deadLetter(reason: string): string {
  return `{"deadLetter":${quote(reason)}}`;
}

function quote(text: string): string {
  return JSON.stringify<string>(text);
}

/** Allocates memory that Orlog writes. It is never freed: each transition has its own module instance. */
export function alloc(length: i32): usize {
  return heap.alloc(length);
}

/** Returns the text that Orlog has written. */
export function readText(pointer: usize, length: i32): string {
  return String.UTF8.decodeUnsafe(pointer, length);
}

/** Returns a text to Orlog: pointer << 32 | length. */
export function returnText(output: string): u64 {
  const bytes = String.UTF8.encode(output);
  return ((changetype<usize>(bytes) as u64) << 32) | (bytes.byteLength as u64);
}

/** Replaces the import `env.abort`. An error traps, and Orlog pauses the instance. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}
