// Dead letters by cause with a remedy, and each dead letter. Actions: redrive one cause, redrive one, discard.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { errorContent, openDialog } from '../dialog.js';
import { atLeast, button, json, pager, section, table, time, turnPage } from '../components.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 50;
/** Remedy for each reason. */
const REMEDIES = {
  undecodable: 'The message is not a valid event. Fix the producer; a redrive cannot succeed.',
  schema_mismatch: 'The definition rejected the data. Fix the producer or deploy a definition that accepts it, then redrive.',
  program_error: 'The definition failed with an expression error, a limit or a bug. Deploy a fix, then redrive.',
  definition_missing: 'The definition of the instance is missing. Deploy it, then redrive.',
  snapshot_inconsistent: 'The program cannot decode the stored state. Deploy the version that wrote it, then redrive.',
  retries_exhausted: 'The input crashed the instance too often. See the node log for the cause.',
  instance_unreadable: 'The stored data of the instance cannot be read. Replay or drop the instance, then redrive.',
  bus_rejected: 'The bus rejected the message, for example because it is too large. Raise the limit, then redrive.',
  state_too_large: 'The state of the instance would be larger than limits.max_state_size. Raise the limit or change the definition, then redrive.',
  transition_too_costly: 'The transition would cost more than limits.max_transition_cost. Change the definition or raise the limit, then redrive.',
  signal_rejected: 'A condition of the signal does not hold: the instance has another version, or the wait has ended. Decide again; then discard it.',
  unauthenticated: 'The context requires signed events, and the message has no valid signature. Publish the event again with a signature; then discard it.',
  tenant_not_allowed: 'A node does not accept the tenant. Add it to tenants.allowed of every node, restart them, then redrive.',
  early_buffer_full: 'The buffer for early inputs is full. Find out why the instance did not start, then redrive.',
};

export function open(page) {
  page.title('Dead letters');
  const state = { cursors: [''], nextCursor: null, originals: new Map() };
  const refresh = page.poll(async (signal) => {
    const [groups, deadLetters] = await Promise.all([
      api.get('/v1/dead-letters/causes', { limit: PAGE_SIZE }, signal),
      api.get('/v1/dead-letters', { limit: PAGE_SIZE, cursor: state.cursors.at(-1) }, signal),
    ]);
    Object.assign(state, { groups, deadLetters, nextCursor: deadLetters.next_cursor });
    render();
  }, INTERVAL_MS);
  const changePage = (forward) => {
    turnPage(state, forward);
    refresh();
  };
  const render = () => page.render(causes(state.groups, refresh), list(state, render, refresh), pager(state, changePage));
}

function causes({ items, complete, next_cursor: next }, refresh) {
  if (!items.length) return section('Causes', {}, h('p', { class: 'ok' }, 'No dead letters.'));
  const aside = [complete ? null : 'partial count', next ? `the ${items.length} most frequent` : null].filter(Boolean);
  return section('Causes', { aside: aside.length ? h('span', { class: 'muted' }, aside.join(', ')) : null }, h('ul', { class: 'causes' }, items.map((cause) => h('li', { 'data-key': `${cause.reason} ${cause.saga}` },
    h('div', { class: 'cause-head' }, h('strong', {}, format.words(cause.reason)), h('span', {}, cause.saga ? `in ${cause.saga}` : 'no instance'), h('span', { class: 'count' }, atLeast(cause.count, complete))),
    h('p', {}, h('q', {}, cause.message)),
    h('p', { class: 'muted' }, REMEDIES[cause.reason] ?? '', ' Between ', time(cause.oldest, 'absolute'), ' and ', time(cause.newest, 'absolute'), '.'),
    caller.can('control') && button('Redrive …', () => redriveCause(cause, refresh), { variant: 'primary', label: `Redrive: ${format.words(cause.reason)} ${cause.saga ?? ''}` })))));
}

function redriveCause(cause, refresh) {
  openDialog({
    title: 'Redrive all?',
    text: `${format.words(cause.reason)}${cause.saga ? ` in ${cause.saga}` : ''}: oldest first. The canary runs first; the rest follow only if it succeeds.`,
    fields: [
      { name: 'limit', label: 'Limit', value: String(Math.min(cause.count, 1000)) },
      { name: 'canary', label: 'Canary', value: '1', hint: 'Number of dead letters to redrive first. Empty: no canary.' },
    ],
    action: 'Redrive',
    async run({ limit, canary }) {
      const selection = { reason: cause.reason, saga: cause.saga ?? undefined, limit: parseCount('Limit', limit), canary: canary ? parseCount('Canary', canary) : undefined };
      let response = await api.post('/v1/dead-letters/redrive', selection);
      // One request scans a limited number. As long as none of them matches, the next ones follow.
      while (response.matched === 0 && response.next_cursor) {
        response = await api.post('/v1/dead-letters/redrive', { ...selection, cursor: response.next_cursor });
      }
      refresh();
      const failed = response.dead_lettered + response.rejected;
      const parts = [`${response.applied + response.published} redriven`, failed ? `${failed} failed again` : '', response.skipped ? `${response.skipped} skipped` : ''].filter(Boolean);
      const notes = [
        response.stopped ? `Stopped: ${response.stopped}.` : null,
        response.failures[0] ? `First error: ${response.failures[0].detail}` : null,
        // Only the user continues: a larger selection was not requested.
        response.has_more ? 'Incomplete: more dead letters match, or were not scanned yet; redrive again.' : null,
      ];
      return [`${parts.join(', ')}.`, ...notes.filter(Boolean)].join(' ');
    },
  });
}

function parseCount(label, text) {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`${label}: enter a whole number of at least 1`);
  return Number(text);
}

function list(state, render, refresh) {
  const columns = [
    { title: 'Type', head: true, render: (deadLetter) => [deadLetter.label, h('div', { class: 'muted' }, format.words(deadLetter.reason))] },
    { title: 'Instance', render: (deadLetter) => (deadLetter.saga ? h('a', { href: router.instance(deadLetter.saga, deadLetter.correlation) }, `${deadLetter.saga} ${deadLetter.correlation}`) : h('span', { class: 'muted' }, 'no instance')) },
    { title: 'Reason', class: 'reason', render: (deadLetter) => [deadLetter.message, original(state, deadLetter, render)] },
    { title: 'Time', render: (deadLetter) => [time(deadLetter.at), h('div', { class: 'muted' }, deadLetter.node)] },
    ...(!caller.can('control') ? [] : [{ title: 'Actions', class: 'row-actions', render: (deadLetter) => h('div', { class: 'buttons' },
      button('Redrive', () => redrive(deadLetter, refresh), { label: `Redrive: ${deadLetter.label}` }),
      button('Discard', () => discard(deadLetter, refresh), { variant: 'danger', label: `Discard: ${deadLetter.label}` })) }]),
  ];
  return section('Dead letters', {}, table({ caption: 'Dead letters, oldest first', columns, rows: state.deadLetters.items, key: (deadLetter) => deadLetter.id, empty: 'None.' }));
}

/** Original input or message, loaded when the user opens it. */
function original(state, deadLetter, render) {
  const content = state.originals.get(deadLetter.id);
  const toggle = async (event) => {
    if (!event.target.open || content) return;
    try {
      const full = await api.get(api.path('v1', 'dead-letters', deadLetter.id));
      state.originals.set(deadLetter.id, json(full.original, 'Original'));
    } catch (error) {
      state.originals.set(deadLetter.id, h('div', {}, errorContent(error)));
    }
    render();
  };
  return h('details', { on: { toggle } }, h('summary', {}, 'Original'), content ? content.cloneNode(true) : h('p', { class: 'muted' }, 'Loading…'));
}

function redrive(deadLetter, refresh) {
  openDialog({
    title: 'Redrive?',
    text: `${deadLetter.label}: ${deadLetter.message}. If it fails again, it is dead-lettered again.`,
    action: 'Redrive',
    async run() {
      const response = await api.post(api.path('v1', 'dead-letters', deadLetter.id, 'redrive'));
      refresh();
      return response.applied ? `${deadLetter.label} was applied.` : `No change: ${response.reason ?? 'already applied'}.`;
    },
  });
}

function discard(deadLetter, refresh) {
  openDialog({
    title: 'Discard?',
    text: `${deadLetter.label}: the dead letter is deleted and never applied.`,
    action: 'Discard',
    danger: true,
    async run() {
      await api.remove(api.path('v1', 'dead-letters', deadLetter.id));
      refresh();
      return `${deadLetter.label} was discarded.`;
    },
  });
}
