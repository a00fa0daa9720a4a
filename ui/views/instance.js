// One saga's whole story on one page: where it stands, what it waits for, what happened, what can be done.

import { all, h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { ask, circumstances, given } from '../dialog.js';
import { drawn } from '../graph.js';
import { badge, button, facts, json, mark, more, section, table, time, waiting } from '../components.js';

const EVERY = 3000;
/** Records of the history that are shown at first. */
const RECORDS = 100;
const LOOKS = {
  running: 'running', asking: 'running', pausing: 'running', done: 'completed', failed: 'failed', given_up: 'failed', undo_failed: 'stuck',
  asking_late: 'stuck', undoing: 'compensating', undone: 'compensating', skipped: 'cancelled', pending: 'plain',
};
const ENDINGS = { done: 'completed', refused: 'failed', busy: 'compensating', down: 'failed', lost: 'failed', timed_out: 'failed' };

export function open(page) {
  const [, saga, correlation] = page.parts;
  const url = api.path('v1', 'sagas', saga, correlation);
  page.title(correlation);
  const state = { records: [], picture: null, version: -1, lines: [], info: null, first: 0 };
  const look = page.follow(async (signal) => {
    const detail = await load(url, state, signal);
    draw(page, detail, state, { url, look: () => look(), earlier });
  }, EVERY);

  async function earlier() {
    const from = Math.max(state.first - RECORDS, 0);
    const page = await api.get(url, { history_after: from, history_limit: state.first - from });
    state.records = [...page.history.items, ...state.records];
    state.first = from;
    look();
  }
}

/** Asks for what is new since the last look; of a long history the end. */
async function load(url, state, signal) {
  const last = state.records.at(-1)?.version;
  let detail = await api.get(url, { history_after: last, history_limit: RECORDS }, signal);
  if (last === undefined && detail.history.next !== null) {
    state.first = detail.version - RECORDS;
    detail = await api.get(url, { history_after: state.first, history_limit: RECORDS }, signal);
  }
  state.records.push(...detail.history.items);
  while (detail.history.next !== null) {
    detail = await api.get(url, { history_after: detail.history.next, history_limit: RECORDS }, signal);
    state.records.push(...detail.history.items);
  }
  const [info, lines] = await Promise.all([
    api.get('/info', {}, signal).catch(() => null),
    api.get(`${url}/lines`, {}, signal).catch(() => ({ items: [] })),
  ]);
  if (state.version !== detail.version) {
    state.picture = await api.text(`${url}/graph.svg`, signal).catch(() => null);
    state.version = detail.version;
  }
  Object.assign(state, { info, lines: lines.items });
  return detail;
}

function draw(page, detail, state, doing) {
  const { saga, correlation, reference } = detail;
  page.title(reference ?? correlation, badge(detail.status, detail.paused), h('div', { class: 'buttons' }, buttons(detail, state, doing)));
  page.draw(
    h('p', { class: 'lead', 'data-key': 'lead' }, h('a', { href: router.to(['definitions', saga]) }, saga), ` v${detail.program.version} · `, h('code', {}, correlation)),
    story(detail, state),
    h('div', { class: 'split', 'data-key': 'split' },
      h('div', {}, timeline(detail, state, doing.earlier), tasks(detail), work(detail), timers(detail), messages(detail, state), stateOf(detail)),
      h('div', {}, picture(detail, state), steps(detail), about(detail))),
  );
}

function stateOf({ state }) {
  return section('State', {}, json(state?.vars ?? state, 'State'), state?.vars ? more('All of it', json(state, 'The whole state')) : null);
}

/** In words: since when, waiting for what, what is wrong. */
function story(detail, state) {
  const { waits, last_error: error, status } = detail;
  const lines = [];
  if (detail.paused) lines.push(h('p', {}, `Paused: inputs are kept and none is applied. ${format.plural(detail.held, 'input waits', 'inputs wait')}.`));
  if (status === 'stuck') lines.push(h('p', {}, 'An undo failed for good, and a person must decide: try it again, leave it undone and go on, or end it as it is.'));
  for (const { names, kind, until } of waiting(waits)) {
    lines.push(h('p', {}, 'Waits for ', h('strong', {}, names), ` (${kind})`, until ? [' until ', time(until, 'at'), ', ', time(until)] : null, '.'));
  }
  for (const upstream of refusing(detail, state.info)) {
    lines.push(h('p', { class: 'bad-text' }, `The breaker of ${upstream.name} is ${format.words(upstream.breaker)}: its work waits until the upstream answers again. `, h('a', { href: router.to(['node']) }, 'See the upstreams')));
  }
  if (error) lines.push(h('p', { class: 'bad-text' }, h('strong', {}, 'What went wrong last: '), error.message, ' ', h('code', {}, error.code)));
  const since = h('p', {}, ended(status) ? 'Ended at ' : 'Unchanged since ', time(detail.updated_at, 'at'), ', ', time(detail.updated_at), '; began ', time(detail.created_at), '.');
  return h('div', { class: `story ${status}`, 'data-key': 'story' }, lines, since);
}

const ended = (status) => ['completed', 'failed', 'cancelled'].includes(status);

/** The upstreams with open breakers that perform what lies in the outbox. */
function refusing({ outbox }, info) {
  const names = new Set(outbox.items.flatMap((item) => (info?.effects?.[item.label] ?? (item.kind === 'command' ? 'gateway' : '')).split(', ')));
  return (info?.upstreams ?? []).filter((upstream) => names.has(upstream.name) && upstream.breaker && upstream.breaker !== 'closed');
}

function buttons(detail, state, doing) {
  const { status, paused } = detail;
  if (ended(status)) return null;
  const give = (verb, wanted) => () => instruct(detail, verb, wanted, doing);
  // While it is paused nothing but an event is taken, and that is kept.
  const stuck = status === 'stuck' && !paused;
  return [
    stuck ? button('Retry', give('retry', { title: 'Try again?', text: 'What made it stuck is tried again.', action: 'Retry', said: 'is tried again' }), { look: 'main' }) : null,
    stuck ? button('Skip', give('skip', { title: 'Leave it undone?', text: 'The undo that failed is left undone, and the saga goes on undoing what came before it.', action: 'Skip', danger: true, said: 'goes on' })) : null,
    stuck ? button('End as it is', give('force-complete', { title: 'End it as it is?', text: 'Nothing more is done or undone. This cannot be taken back.', action: 'End it', danger: true, said: 'was ended' }), { look: 'danger' }) : null,
    button('Signal', () => signal(detail, state, doing)),
    paused
      ? button('Resume', give('resume', { title: 'Go on?', text: 'What was kept is applied in its order.', action: 'Resume', said: 'goes on' }))
      : button('Pause', give('pause', { title: 'Pause it?', text: 'Inputs are kept and none is applied until it is resumed. Work under way goes on.', action: 'Pause', said: 'is paused' })),
    status === 'running' && !paused ? button('Cancel', give('cancel', { title: 'Cancel it?', text: 'It stops going forward, and what was done is undone in reverse.', action: 'Cancel the saga', danger: true, said: 'is cancelled' }), { look: 'danger' }) : null,
  ];
}

const atVersion = (detail) => ({ name: 'exactly', kind: 'check', value: true, label: `Only if it still stands at version ${detail.version}` });

function instruct(detail, verb, { said, ...wanted }, { url, look }) {
  ask({
    ...wanted,
    fields: [...circumstances(), atVersion(detail)],
    async run(values) {
      const answer = await api.post(`${url}/${verb}`, { ...given(values), expected_version: values.exactly ? detail.version : undefined });
      look();
      return told(detail, answer, said);
    },
  });
}

function told(detail, answer, said) {
  if (!answer.applied) return `Nothing changed: ${answer.why ?? 'it meant nothing now'}.`;
  return `${detail.correlation} ${said}: ${answer.status}, version ${answer.version}.`;
}

function signal(detail, state, { url, look }) {
  const waited = detail.waits.filter((wait) => wait.kind === 'event').map((wait) => wait.name);
  const taken = (state.info?.sagas ?? []).filter((saga) => saga.name === detail.saga).flatMap((saga) => saga.events);
  ask({
    title: 'Send it an event',
    text: 'It is addressed to this instance alone.',
    fields: [
      { name: 'type', label: 'Event type', value: waited[0], options: [...new Set([...waited, ...taken])], required: true },
      { name: 'data', label: 'Data', kind: 'json', hint: 'JSON; may be left out.' },
      ...circumstances(),
    ],
    action: 'Send',
    async run(values) {
      const answer = await api.post(`${url}/signal`, { type: values.type, data: values.data, ...given(values) });
      look();
      return told(detail, answer, answer.paused ? `keeps ${values.type} until it is resumed` : `took ${values.type}`);
    },
  });
}

function steps({ state }) {
  if (!Array.isArray(state?.steps)) return null;
  const look = (step) => LOOKS[step.state] ?? 'plain';
  return section('Steps', {}, h('ol', { class: 'steps' }, state.steps.map((step) => h('li', { class: look(step), 'data-key': step.id },
    h('span', { class: 'name' }, step.id), mark(step.state, look(step)), step.until ? h('span', { class: 'faint' }, 'due ', time(step.until)) : null))));
}

/** History, attempts and what is still to come, in the order of time. */
function timeline(detail, state, earlier) {
  const answers = new Map(state.records.map((record) => [record.input, record.at]));
  // An attempt is noted a moment after it was answered, and stands before what came of it.
  const when = (attempt) => [attempt.at, answers.get(`outcome:${attempt.work_id}`) ?? attempt.at].sort()[0];
  const past = [
    ...detail.attempts.map((attempt, number) => ({ at: when(attempt), key: `a${number}-${attempt.at}`, attempt })),
    ...state.records.map((record) => ({ at: record.at, key: `v${record.version}`, record })),
  ].sort((a, b) => a.at.localeCompare(b.at));
  const first = state.records[0] ? Date.parse(state.records[0].at) : 0;
  const entries = past.map((entry) => (entry.record ? transition(entry, first) : attempted(entry)));
  const next = ended(detail.status) ? [] : detail.timers.map((timer) => h('li', { class: 'to-come', 'data-key': `t-${timer.name}` },
    h('div', { class: 'when' }, time(timer.due, 'at')), h('div', {}, h('strong', {}, timer.name), ' fires ', time(timer.due), ' unless it is answered before')));
  return section('What happened', { aside: h('span', { class: 'faint' }, `${format.plural(detail.version, 'transition')}, oldest first`) },
    state.first > 0 ? button(`Show ${Math.min(RECORDS, state.first)} earlier`, earlier) : null,
    h('ol', { class: 'timeline' }, entries, next));
}

function transition({ key, record }, first) {
  const work = record.work.map((item) => h('li', {}, 'asks for ', h('strong', {}, item.label), ' ', h('span', { class: 'id', title: 'The idempotency key' }, item.id)));
  return h('li', { class: record.status, 'data-key': key },
    h('div', { class: 'when' }, time(record.at, 'at'), h('span', { class: 'faint' }, `+${format.duration(Date.parse(record.at) - first)}`)),
    h('div', {},
      h('div', {}, h('strong', {}, record.label), ' ', h('span', { class: 'faint' }, `v${record.version}`), ' ', ended(record.status) || record.status === 'stuck' ? badge(record.status) : null),
      record.note && record.note !== record.label ? h('div', { class: 'note' }, record.note) : null,
      work.length ? h('ul', {}, work) : null));
}

function attempted({ key, attempt }) {
  return h('li', { class: `attempt ${attempt.ending}`, 'data-key': key },
    h('div', { class: 'when' }, time(attempt.at, 'at')),
    h('div', {}, 'Attempt at ', h('strong', {}, attempt.label), ` (${attempt.upstream}) `, mark(attempt.ending, ENDINGS[attempt.ending] ?? 'plain'), ' ', h('span', { class: 'faint' }, `after ${format.duration(attempt.took_ms)}`)));
}

function picture(detail, { picture }) {
  if (!picture) return null;
  const label = `${detail.saga} version ${detail.program.version}, with the place where the instance stands; the steps are listed under Steps`;
  return section('Where it stands', {}, h('div', { class: 'picture', 'data-keep': `v${detail.version}` }, drawn(picture, label)));
}

function work(detail) {
  const tried = (id) => detail.attempts.filter((attempt) => attempt.work_id === id).length;
  const columns = [
    { title: 'Work', head: true, show: (item) => [item.label, h('div', { class: 'id' }, item.id)] },
    { title: 'Kind', show: (item) => item.kind },
    { title: 'Since', show: (item) => time(item.created_at) },
    { title: 'Failed attempts', number: true, show: (item) => format.number(tried(item.id)) },
    { title: 'Deadline', show: (item) => time(item.deadline) },
  ];
  if (!detail.outbox.items.length) return null;
  return section('Work under way', { aside: detail.outbox.complete ? null : 'there may be more' },
    table({ caption: 'Work under way', columns, rows: detail.outbox.items, key: (item) => item.id }));
}

function timers(detail) {
  if (!detail.timers.length) return null;
  return section('Timers', {}, table({
    caption: 'Timers', rows: detail.timers, key: (timer) => `${timer.name}-${timer.token}`,
    columns: [{ title: 'Timer', head: true, show: (timer) => timer.name }, { title: 'Due', show: (timer) => time(timer.due) }, { title: 'At', show: (timer) => time(timer.due, 'at') }],
  }));
}

function tasks(detail) {
  if (!detail.tasks.length) return null;
  return section('Tasks', {}, h('ul', { class: 'bare' }, detail.tasks.map((task) => h('li', { 'data-key': task.id },
    h('a', { href: router.to(['tasks', task.id]) }, task.title), ' ', h('span', { class: 'faint' }, task.claimed_by ? `claimed by ${task.claimed_by}` : task.roles.join(', '), task.due ? [', due ', time(task.due)] : null)))));
}

/** What jobs wrote, and what waits to be applied. */
function messages(detail, { lines }) {
  if (!lines.length && !detail.held) return null;
  return section('Messages', {},
    detail.held ? h('p', {}, `${format.plural(detail.held, 'input is', 'inputs are')} kept and not applied yet.`) : null,
    lines.map((job) => more(`${job.effect}: ${format.plural(job.lines.length, 'line')}`, h('pre', { class: 'json', tabindex: '0' }, job.lines.map((line) => `${format.at(line.at)}  ${line.text}`).join('\n')))));
}

/** The condition that holds of the sagas that an instance has begun. */
function begunBy({ saga, correlation }) {
  return `parent != null && parent.saga == ${JSON.stringify(saga)} && parent.correlation == ${JSON.stringify(correlation)}`;
}

function about(detail) {
  const { parent } = detail;
  return section('About it', {}, facts([
    ['Correlation id', h('code', {}, detail.correlation)],
    ['Definition', all(`${detail.saga} v${detail.program.version} `, h('span', { class: 'id' }, detail.program.hash.slice(0, 12)))],
    ['Version', format.number(detail.version)],
    ['Begun by', parent ? h('a', { href: router.instance(parent.saga, parent.correlation) }, `${parent.saga} ${parent.correlation}`) : null],
    ['Sagas it began', h('a', { href: router.to(['instances'], { filter: begunBy(detail) }) }, 'Find them')],
    ['Last input', h('code', {}, detail.last_input)],
    ['Node', detail.node],
    ['Trace', detail.trace_id ? h('code', {}, detail.trace_id) : null],
    ['Began', time(detail.created_at, 'at')],
    ['Changed', time(detail.updated_at, 'at')],
  ]));
}
