// One instance: waits, last error, control requests, history, graph, steps, tasks, pending work, timers, job logs, state.

import { fragment, h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { openDialog, userFields, userValues } from '../dialog.js';
import { renderGraph } from '../graph.js';
import { badge, button, definitionList, disclosure, groupWaits, json, referenceText, section, statusMark, table, time } from '../components.js';

const INTERVAL_MS = 3000;
/** Number of history entries per page. */
const HISTORY_PAGE_SIZE = 100;
/** Badge of each step state. */
const STEP_BADGES = {
  pending: 'plain', running: 'running', retrying: 'running', in_doubt: 'running', child_awaited: 'running', completed: 'completed',
  skipped: 'cancelled', bypassed: 'cancelled', failed: 'failed', abandoned: 'failed',
  blocked: 'stuck', in_doubt_abandoned: 'stuck', compensation_failed: 'stuck',
  compensation_pending: 'compensating', compensating: 'compensating', compensation_retrying: 'compensating', compensated: 'compensating',
};
/** Badge of each attempt outcome. */
const OUTCOME_BADGES = { succeeded: 'completed', rejected: 'failed', throttled: 'compensating', unavailable: 'failed', response_lost: 'failed', timed_out: 'failed' };

export function open(page) {
  const [, saga, correlation] = page.segments;
  const url = api.path('v1', 'sagas', saga, correlation);
  page.title(correlation);
  const state = { history: [], graph: null, version: -1, jobLogs: [], consumed: null, first: 0 };
  const refresh = page.poll(async (signal) => {
    const detail = await load(url, state, signal);
    render(page, detail, state, { url, refresh: () => refresh(), loadEarlier });
  }, INTERVAL_MS);

  async function loadEarlier() {
    const from = Math.max(state.first - HISTORY_PAGE_SIZE, 0);
    const earlier = await api.get(url, { history_after: from, history_limit: state.first - from });
    state.history = [...earlier.history.items, ...state.history];
    state.first = from;
    refresh();
  }
}

/** Loads the instance and its new history entries. The first load of a long history starts with the last page. */
async function load(url, state, signal) {
  const last = state.history.at(-1)?.version;
  let detail = await api.get(url, { history_after: last, history_limit: HISTORY_PAGE_SIZE }, signal);
  if (last === undefined && detail.history.next !== null) {
    state.first = detail.version - HISTORY_PAGE_SIZE;
    detail = await api.get(url, { history_after: state.first, history_limit: HISTORY_PAGE_SIZE }, signal);
  }
  state.history.push(...detail.history.items);
  while (detail.history.next !== null) {
    detail = await api.get(url, { history_after: detail.history.next, history_limit: HISTORY_PAGE_SIZE }, signal);
    state.history.push(...detail.history.items);
  }
  const [consumed, jobLogs] = await Promise.all([
    state.consumed ?? consumedEvents(detail, signal),
    api.all(`${url}/job-logs`, {}, signal).catch(() => []),
  ]);
  if (state.version !== detail.version) {
    state.graph = await api.text(`${url}/graph.svg`, signal).catch(() => null);
    state.version = detail.version;
  }
  Object.assign(state, { consumed, jobLogs });
  return detail;
}

/** Returns the event types that the definition of an instance consumes. */
async function consumedEvents({ saga, definition }, signal) {
  // Schedules are instances of a built-in saga without a definition.
  if (saga.startsWith('orlog.')) return [];
  const versions = await api.all(api.path('v1', 'definitions', saga), {}, signal, 'versions').catch(() => []);
  const version = versions.find(({ hash }) => hash === definition.hash);
  return version?.events.map((event) => event.type) ?? [];
}

function render(page, detail, state, context) {
  const { saga, correlation, reference } = detail;
  page.title(referenceText(reference) ?? correlation, badge(detail.status, detail.paused), h('div', { class: 'buttons' }, buttons(detail, state, context)));
  page.render(
    h('p', { class: 'lead', 'data-key': 'lead' }, h('a', { href: router.to(['definitions', saga]) }, saga), ` v${detail.definition.version} · `, h('code', {}, correlation)),
    summary(detail, state),
    h('div', { class: 'split', 'data-key': 'split' },
      h('div', {}, timeline(detail, state, context.loadEarlier), tasks(detail), deadLetters(detail), bufferedInputs(detail), ignoredEvents(detail), pendingWork(detail), timers(detail), jobLogs(state), stateView(detail)),
      h('div', {}, graph(detail, state), steps(detail), details(detail))),
  );
}

function stateView({ state }) {
  return section('State', {}, json(state?.vars ?? state, 'State'), state?.vars ? disclosure('Full state', json(state, 'Full state')) : null);
}

/** Summary in sentences: pause, waits, open circuit breakers, last error, times. */
function summary(detail, state) {
  const { waits, last_error: error, status } = detail;
  const paragraphs = [];
  if (detail.paused) paragraphs.push(h('p', {}, 'Paused: inputs are buffered and not applied.'));
  if (detail.buffered_inputs) paragraphs.push(h('p', {}, `${format.plural(detail.buffered_inputs, 'input is', 'inputs are')} buffered and not applied yet.`));
  if (detail.attention === 'unapplied_result') paragraphs.push(h('p', { class: 'error-text' }, 'A result of its work could not be applied and is a dead letter: the instance waits until the cause is corrected and the dead letter is redriven.'));
  if (status === 'stuck') paragraphs.push(h('p', {}, 'A compensation failed permanently and needs an operator decision: retry it, skip it, or force-complete the instance.'));
  for (const { names, kind, until, tokens } of groupWaits(waits)) {
    paragraphs.push(h('p', {}, 'Waiting for ', h('strong', { title: `Wait token ${tokens}` }, names), ` (${format.words(kind)})`, until ? [' until ', time(until, 'absolute'), ', ', time(until)] : null, '.'));
  }
  for (const breaker of detail.breakers) {
    paragraphs.push(h('p', { class: 'error-text' }, `The circuit breaker of ${breaker.upstream} is ${format.words(breaker.state)}: ${breaker.work.join(', ')} waits for the upstream. `, h('a', { href: router.to(['node']) }, 'Show upstreams')));
  }
  if (error) paragraphs.push(failure('Last error: ', error));
  if (error?.cause) paragraphs.push(failure('Cause of the compensation: ', error.cause));
  const times = h('p', {}, isFinal(status) ? 'Ended at ' : 'Unchanged since ', time(detail.updated_at, 'absolute'), ', ', time(detail.updated_at), '; started ', time(detail.created_at), '.');
  return h('div', { class: `summary ${status}`, 'data-key': 'summary' }, paragraphs, times);
}

/** Returns an error with its code, step, attempts and time. */
function failure(title, { message, code, step, attempts, at }) {
  const where = [step, attempts ? format.plural(attempts, 'attempt') : null].filter(Boolean).join(', ');
  return h('p', { class: 'error-text' }, h('strong', {}, title), message, ' ', h('code', {}, code), where ? `, ${where}` : null, at ? [', ', time(at)] : null);
}

const isFinal = (status) => ['completed', 'failed', 'cancelled'].includes(status);

function buttons(detail, state, context) {
  const { status, paused } = detail;
  if (isFinal(status) || !caller.can('control')) return null;
  const action = (verb, dialog) => () => control(detail, verb, dialog, context);
  // A paused instance accepts no control requests for stuck instances.
  const stuck = status === 'stuck' && !paused;
  return [
    stuck ? button('Retry', action('retry', { title: 'Retry?', text: 'Retries the failed action.', action: 'Retry', result: 'is retried' }), { variant: 'primary' }) : null,
    stuck ? button('Skip', action('skip', { title: 'Skip compensation?', text: 'Skips the failed compensation and continues with the previous step.', action: 'Skip', danger: true, result: 'continues' })) : null,
    stuck ? button('Force complete', action('force-complete', { title: 'Force complete?', text: 'Ends the instance without further steps or compensations. This action is irreversible.', action: 'Force complete', danger: true, result: 'is force-completed' }), { variant: 'danger' }) : null,
    button('Signal', () => signal(detail, state, context)),
    paused
      ? button('Resume', action('resume', { title: 'Resume?', text: 'Applies the buffered inputs in order.', action: 'Resume', result: 'is resumed' }))
      : button('Pause', action('pause', { title: 'Pause?', text: 'Buffers new inputs until the instance is resumed. In-flight work continues.', action: 'Pause', result: 'is paused' })),
    status === 'running' && !paused ? button('Cancel', action('cancel', { title: 'Cancel?', text: 'Stops the saga and compensates completed steps in reverse order.', action: 'Cancel saga', danger: true, result: 'is cancelled' }), { variant: 'danger' }) : null,
  ];
}

const versionField = (detail) => ({ name: 'checkVersion', kind: 'check', value: true, label: `Only if the version is still ${detail.version}` });

/** Opens the dialog of a control request. */
function control(detail, verb, { result, ...dialog }, { url, refresh }) {
  openDialog({
    ...dialog,
    fields: [...userFields(), versionField(detail)],
    async run(values) {
      const response = await api.post(`${url}/${verb}`, { ...userValues(values), expected_version: values.checkVersion ? detail.version : undefined });
      refresh();
      return responseMessage(detail, response, result);
    },
  });
}

function responseMessage(detail, response, result) {
  if (!response.applied) return `No change: ${response.reason ?? 'the request had no effect'}.`;
  return `${detail.correlation} ${result}: ${response.status}, version ${response.version}.`;
}

function signal(detail, state, { url, refresh }) {
  const tokens = new Map(detail.waits.filter((wait) => wait.kind === 'event').map((wait) => [wait.name, wait.token]));
  const awaited = [...tokens.keys()];
  openDialog({
    title: 'Send signal',
    text: 'Delivers an event to this instance only.',
    fields: [
      // A value would filter the list, so that the other types are hidden.
      { name: 'type', label: 'Event type', options: [...new Set([...awaited, ...state.consumed])], required: true, hint: awaited.length ? `The instance waits for ${awaited.join(', ')}.` : null },
      { name: 'data', label: 'Data', kind: 'json', hint: 'JSON, optional.' },
      { name: 'checkWait', kind: 'check', value: true, label: 'Only if the instance still waits for this event' },
      ...userFields(),
    ],
    action: 'Send',
    async run(values) {
      const token = values.checkWait ? tokens.get(values.type) : undefined;
      const response = await api.post(`${url}/signal`, { type: values.type, data: values.data, wait_token: token, ...userValues(values) });
      refresh();
      return responseMessage(detail, response, response.paused ? `buffers ${values.type} until resumed` : `received ${values.type}`);
    },
  });
}

function steps({ state }) {
  if (!Array.isArray(state?.steps)) return null;
  const variant = (step) => STEP_BADGES[step.state] ?? 'plain';
  // The current round of a loop is the last one. The first round, 0, is not shown.
  const round = (step) => step.rounds?.at(-1).round ?? step.round;
  const waits = (step) => step.state === 'running' && step.job === 'dispatched';
  return section('Steps', {}, h('ol', { class: 'steps' }, state.steps.map((step) => h('li', { class: variant(step), 'data-key': step.id },
    h('span', { class: 'name' }, step.id), statusMark(step.state, variant(step)), round(step) ? h('span', { class: 'muted' }, `round ${round(step)}`) : null, waits(step) ? h('span', { class: 'muted' }, 'job dispatched') : null, step.until ? h('span', { class: 'muted' }, 'due ', time(step.until)) : null, step.failure ? h('span', { class: 'muted' }, handledFailure(step.failure)) : null))));
}

/** Text of a failure after which the saga runs on. */
function handledFailure({ code, message, handled_by: handledBy }) {
  const reason = { on_timeout: 'handled by on_timeout', on_failure: 'handled by on_failure', join: 'tolerated by a join' }[handledBy];
  return `${code}: ${message} (${reason})`;
}

/** History entries, attempts and armed timers by time. */
function timeline(detail, state, loadEarlier) {
  // The input id of a work result ends with the id of its work item. Its history entry has the attempts.
  const completed = new Set(state.history.filter((entry) => entry.attempts).map((entry) => entry.input_id.replace(/^[^:]*:/, '')));
  const attempts = detail.attempts.filter((attempt) => !completed.has(attempt.work_id));
  const past = [
    ...attempts.map((attempt, index) => ({ at: attempt.at, key: `a${index}-${attempt.at}`, attempt })),
    ...state.history.map((entry) => ({ at: entry.at, key: `v${entry.version}`, entry })),
  ].sort((a, b) => a.at.localeCompare(b.at));
  const start = state.history[0] ? Date.parse(state.history[0].at) : 0;
  const items = past.map((item) => (item.entry ? historyItem(item, start, detail.attempts) : attemptItem(item)));
  const upcoming = isFinal(detail.status) ? [] : detail.timers.map((timer) => h('li', { class: 'upcoming', 'data-key': `t-${timer.name}` },
    h('div', { class: 'time' }, time(timer.due, 'absolute')), h('div', {}, h('strong', {}, timer.name), ' fires ', time(timer.due), ' unless cancelled')));
  return section('History', { aside: h('span', { class: 'muted' }, `${format.plural(detail.version, 'transition')}, oldest first`) },
    state.first > 0 ? button(`Show ${Math.min(HISTORY_PAGE_SIZE, state.first)} earlier`, loadEarlier) : null,
    h('ol', { class: 'timeline' }, items, upcoming));
}

function historyItem({ key, entry }, start, recent) {
  const work = entry.work.map((item) => h('li', {}, 'requests ', h('strong', {}, item.label), ' ', h('span', { class: 'id', title: 'Idempotency key' }, item.id)));
  const { failure } = entry;
  return h('li', { class: entry.status, 'data-key': key },
    h('div', { class: 'time' }, time(entry.at, 'absolute'), h('span', { class: 'muted' }, `+${format.duration(Date.parse(entry.at) - start)}`)),
    h('div', {},
      h('div', {}, h('strong', {}, entry.input_label), ' ', h('span', { class: 'muted' }, `v${entry.version}`), ' ', isFinal(entry.status) || entry.status === 'stuck' ? badge(entry.status) : null),
      entry.note && entry.note !== entry.input_label ? h('div', { class: 'note' }, entry.note) : null,
      failure ? h('div', { class: 'error-text' }, failure.message, ' ', h('code', {}, failure.code)) : null,
      work.length ? h('ul', {}, work) : null,
      attemptLog(entry, recent),
      payloads(entry)));
}

/** Attempts of completed work that did not succeed at once. The recent attempts of the node name the upstream. */
function attemptLog({ attempts: log, input_id: input }, recent) {
  if (!log) return null;
  const work = recent.find((attempt) => input.endsWith(attempt.work_id));
  const omitted = log.omitted ? h('li', { class: 'muted' }, `${format.plural(log.omitted, 'attempt')} omitted`) : null;
  const rows = log.items.map((attempt) => h('li', { class: `attempt ${attempt.outcome}` }, attemptText(attempt)));
  rows.splice(1, 0, omitted);
  return [work ? h('div', {}, 'Attempts of ', h('strong', {}, work.label), ` (${work.upstream})`) : null, h('ul', { class: 'attempts' }, rows)];
}

/** Describes an attempt: number, outcome, message and the beginning of the response. */
function attemptText(attempt) {
  return [`${attempt.number}. `, time(attempt.at, 'absolute'), ' ', statusMark(attempt.outcome, OUTCOME_BADGES[attempt.outcome] ?? 'plain'), ' ',
    h('span', { class: 'muted' }, `after ${format.duration(attempt.duration_ms)}`),
    attempt.code ? [' ', h('span', { class: 'error-text' }, attempt.message), ' ', h('code', {}, attempt.code)] : null,
    attempt.response ? h('pre', { class: 'json', tabindex: '0' }, attempt.response) : null];
}

/** Payloads of a transition beside the variables that it changed. */
function payloads(entry) {
  const work = entry.work.filter((item) => item.data);
  if (!entry.data && !entry.variables && !work.length) return null;
  return disclosure('Data', h('div', { class: 'columns' },
    h('div', {}, entry.data ? [h('h4', {}, 'Input'), payload(entry.data, 'Input')] : null, work.map((item) => [h('h4', {}, item.label), payload(item.data, item.label)])),
    h('div', {}, entry.variables ? [h('h4', {}, 'Changed variables'), variables(entry.variables)] : h('p', { class: 'muted' }, 'No variable changed.'))));
}

function payload({ value, beginning, size }, label) {
  return beginning === undefined ? json(value, label) : h('pre', { class: 'json', tabindex: '0' }, `${beginning}… (${format.bytes(size)})`);
}

function variables(changes) {
  if (changes.beginning !== undefined) return payload(changes, 'Changed variables');
  const show = (value) => h('code', {}, JSON.stringify(value));
  const rows = Object.entries(changes.value).map(([name, change]) => ({ name, before: Array.isArray(change) ? change[0] : change, after: Array.isArray(change) ? change[1] : change }));
  return table({
    caption: 'Changed variables', rows, key: (row) => row.name,
    columns: [{ title: 'Variable', head: true, render: (row) => row.name }, { title: 'Before', render: (row) => show(row.before) }, { title: 'After', render: (row) => show(row.after) }],
  });
}

function deadLetters({ dead_letters: letters, dead_letters_complete: complete }) {
  if (!letters.length) return null;
  return section('Dead letters', { aside: complete ? null : 'truncated' }, table({
    caption: 'Dead letters of the instance', rows: letters, key: (letter) => letter.id,
    columns: [
      { title: 'Input', head: true, render: (letter) => h('a', { href: router.to(['dead-letters']) }, letter.label) },
      { title: 'Reason', render: (letter) => [letter.message, ' ', h('code', {}, letter.reason)] },
      { title: 'Time', render: (letter) => time(letter.at) },
    ],
  }));
}

/** Inputs that are stored until the instance is resumed or has processed its queue, and early events of its steps. */
function bufferedInputs({ buffered, state }) {
  const early = (state?.early_events ?? []).map((label, index) => ({ label, reason: 'kept until its step starts', id: `early-${index}` }));
  const rows = [...buffered, ...early];
  if (!rows.length) return null;
  return section('Buffered inputs', {}, table({
    caption: 'Buffered inputs', rows, key: (input) => input.id,
    columns: [
      { title: 'Input', head: true, render: (input) => input.label },
      { title: 'Reason', render: (input) => format.words(input.reason) },
      { title: 'Time', render: (input) => (input.at ? time(input.at) : null) },
    ],
  }));
}

/**
 * Events that changed nothing; the node keeps the last ones in memory. During an upgrade, a pod of the
 * release before can answer, without the list.
 */
function ignoredEvents({ ignored_events: events = [] }) {
  if (!events.length) return null;
  // An event can be ignored several times.
  const rows = events.map((event, index) => ({ ...event, key: `${index}-${event.id}` }));
  return section('Ignored events', { aside: 'recent' }, table({
    caption: 'Ignored events', rows, key: (event) => event.key,
    columns: [
      { title: 'Event', head: true, render: (event) => event.type },
      { title: 'Reason', render: (event) => event.reason },
      { title: 'Time', render: (event) => time(event.at) },
    ],
  }));
}

function attemptItem({ key, attempt }) {
  return h('li', { class: `attempt ${attempt.outcome}`, 'data-key': key },
    h('div', { class: 'time' }, time(attempt.at, 'absolute')),
    h('div', {}, 'Attempt ', h('strong', {}, attempt.label), ` (${attempt.upstream}) `, attemptText(attempt)));
}

function graph(detail, state) {
  if (!state.graph) return null;
  const label = `${detail.saga} version ${detail.definition.version}, with the current state of the instance; the Steps table has the same data`;
  return section('Graph', {}, h('div', { class: 'graph-frame', 'data-cache-key': `v${detail.version}` }, renderGraph(state.graph, label)));
}

function pendingWork(detail) {
  if (!detail.outbox.items.length) return null;
  const attempts = (id) => detail.attempts.filter((attempt) => attempt.work_id === id).length;
  const columns = [
    { title: 'Work item', head: true, render: (item) => [item.label, h('div', { class: 'id' }, item.id)] },
    { title: 'Kind', render: (item) => item.kind },
    { title: 'Priority', render: (item) => item.priority },
    { title: 'Created', render: (item) => time(item.created_at) },
    { title: 'Failed attempts', number: true, render: (item) => format.number(attempts(item.id)) },
    { title: 'Deadline', render: (item) => time(item.deadline) },
  ];
  return section('Pending work', { aside: detail.outbox.complete ? null : 'truncated' },
    table({ caption: 'Pending work', columns, rows: detail.outbox.items, key: (item) => item.id }));
}

function timers(detail) {
  if (!detail.timers.length) return null;
  return section('Timers', {}, table({
    caption: 'Timers', rows: detail.timers, key: (timer) => `${timer.name}-${timer.token}`,
    columns: [{ title: 'Timer', head: true, render: (timer) => [timer.name, timer.signal ? h('div', { class: 'muted' }, `delivers ${timer.signal}`) : null] }, { title: 'Due', render: (timer) => time(timer.due) }, { title: 'Due time', render: (timer) => time(timer.due, 'absolute') }],
  }));
}

function tasks(detail) {
  if (!detail.tasks.length) return null;
  return section('Tasks', {}, h('ul', { class: 'plain-list' }, detail.tasks.map((task) => h('li', { 'data-key': task.id },
    h('a', { href: router.to(['tasks', task.id]) }, task.title), ' ', h('span', { class: 'muted' }, task.claimed_by ? `claimed by ${task.claimed_by}` : task.roles.join(', '), task.due ? [', due ', time(task.due)] : null)))));
}

function jobLogs({ jobLogs }) {
  if (!jobLogs.length) return null;
  return section('Job logs', {}, jobLogs.map((job) => disclosure(`${job.effect}: ${format.plural(job.log.length, 'line')}${job.omitted_lines ? `, ${job.omitted_lines} earlier ones omitted` : ''}`,
    h('pre', { class: 'json', tabindex: '0' }, job.log.map((line) => `${format.absolute(line.at)}  ${line.text}`).join('\n')))));
}

/** Returns the filter that selects the child sagas of an instance. */
function childFilter({ saga, correlation }) {
  return `parent != null && parent.saga == ${JSON.stringify(saga)} && parent.correlation == ${JSON.stringify(correlation)}`;
}

function details(detail) {
  const { parent } = detail;
  return section('Details', {}, definitionList([
    ['Correlation ID', h('code', {}, detail.correlation)],
    ['Definition', fragment(`${detail.saga} v${detail.definition.version} `, h('span', { class: 'id' }, detail.definition.hash.slice(0, 12)))],
    ['Version', format.number(detail.version)],
    ['Parent', parent ? h('a', { href: router.instance(parent.saga, parent.correlation) }, `${parent.saga} ${parent.correlation}`) : null],
    ['Child sagas', h('a', { href: router.to(['instances'], { filter: childFilter(detail) }) }, 'Show instances')],
    ['Last input ID', h('code', {}, detail.last_input_id)],
    ['Node', detail.node],
    ['Trace ID', detail.trace_id ? h('code', {}, detail.trace_id) : null],
    ['Started', time(detail.created_at, 'absolute')],
    ['Updated', time(detail.updated_at, 'absolute')],
  ]));
}
