// Finding instances, a page at a time. A request looks at a bounded number of them: where few of many fit, the page goes on
// asking until it is full, and says how far it is.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { badge, button, field, pager, table, time, turn, waiting } from '../components.js';

const EVERY = 5000;
const ROWS = 50;
/** Above this a page is looked up again only on demand. */
const CHEAP = 5000;
const STATUSES = ['running', 'compensating', 'stuck', 'completed', 'failed', 'cancelled'];
const SPANS = [['', 'any time'], ['900', 'the last 15 minutes'], ['3600', 'the last hour'], ['86400', 'the last day'], ['604800', 'the last week']];
const OLD = [['', 'any time'], ['900', '15 minutes ago or longer'], ['3600', 'an hour ago or longer'], ['86400', 'a day ago or longer'], ['604800', 'a week ago or longer']];

export async function open(page) {
  page.title('Instances');
  const definitions = await api.get('/v1/definitions').catch(() => ({ items: [] }));
  const sagas = [...new Set(definitions.items.map((definition) => definition.saga))];
  const state = { cursors: [''], scanned: 0, found: null, looking: false, stopped: false };
  const wanted = Object.fromEntries(page.query);

  const draw = () => page.draw(filters(sagas, wanted, change), progress(state, stop), list(state), pager(state, step));
  const look = page.follow(async (signal) => {
    if (!state.again && (state.refused || (state.found && state.scanned > CHEAP))) return;
    Object.assign(state, { again: false, refused: false });
    try {
      await load(state, wanted, signal, draw);
    } catch (error) {
      // A condition that is none finds nothing; what was found by another one would be taken for its answer.
      if (error.status === 400) {
        Object.assign(state, { found: null, next: null, looking: false, refused: true });
        draw();
      }
      throw error;
    }
    draw();
  }, EVERY);
  draw();

  function again() {
    state.again = true;
    look();
  }
  function change(name, value) {
    if (value) wanted[name] = value;
    else delete wanted[name];
    router.go(router.to(['instances'], wanted), true);
    Object.assign(state, { cursors: [''], stopped: true });
    again();
  }
  function step(forward) {
    turn(state, forward);
    again();
  }
  function stop() {
    state.stopped = true;
  }
}

/** Fills a page. */
async function load(state, wanted, signal, draw) {
  state.stopped = false;
  const items = [];
  let [cursor, scanned, failed, failure] = [state.cursors.at(-1), 0, 0, null];
  do {
    const found = await api.get('/v1/sagas', { ...query(wanted), limit: ROWS - items.length, cursor }, signal);
    items.push(...found.items);
    scanned += found.scanned;
    failed += found.failed;
    failure ??= found.failure;
    cursor = found.next;
    if (cursor && items.length < ROWS && !state.stopped) {
      Object.assign(state, { looking: true, scanned, found: state.found ?? items });
      draw();
    }
  } while (cursor && items.length < ROWS && !state.stopped);
  Object.assign(state, { found: items, next: cursor, scanned, failed, failure, looking: false });
}

function query({ saga, status, prefix, filter, within, before }) {
  const back = (seconds) => (seconds ? new Date(format.now() - seconds * 1000).toISOString() : undefined);
  return { saga, status, prefix, filter, updated_from: back(within), updated_until: back(before) };
}

function filters(sagas, wanted, change) {
  const chosen = (wanted.status ?? '').split(',').filter(Boolean);
  const options = (pairs) => pairs.map(([value, title]) => h('option', { value }, title));
  const known = wanted.saga && !sagas.includes(wanted.saga) ? [wanted.saga, ...sagas] : sagas;
  const select = (name, pairs) => h('select', { value: wanted[name] ?? '', on: { change: (event) => change(name, event.target.value) } }, options(pairs));
  const toggle = (status) => (event) => {
    const rest = chosen.filter((other) => other !== status);
    change('status', (event.target.checked ? [...rest, status] : rest).join(','));
  };
  let timer;
  const typed = (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => change('prefix', event.target.value.trim()), 250);
  };
  return h('form', { class: 'filters', role: 'search', 'aria-label': 'Which instances', 'data-key': 'filters', on: { submit: (event) => event.preventDefault() } },
    field('Definition', select('saga', [['', 'all'], ...known.map((saga) => [saga, saga])])),
    field('Id begins with', h('input', { type: 'search', value: wanted.prefix ?? '', autocomplete: 'off', on: { input: typed } })),
    field('Changed within', select('within', SPANS)),
    field('Last changed', select('before', OLD)),
    h('div', { class: 'condition' }, field('Condition (CEL)', h('input', {
      type: 'text', class: 'code', value: wanted.filter ?? '', placeholder: "vars.total > 1000 && waits.exists(w, w.name == 'charge')",
      autocomplete: 'off', spellcheck: 'false', on: { change: (event) => change('filter', event.target.value.trim()) },
    }), 'Over fields and state of an instance; Enter looks. Every instance that the other filters leave is read.')),
    h('fieldset', {}, h('legend', {}, 'Status'), STATUSES.map((status) => h('label', { class: 'chip' },
      h('input', { type: 'checkbox', checked: chosen.includes(status), on: { change: toggle(status) } }), badge(status)))));
}

function progress(state, stop) {
  const text = state.looking
    ? `Looked at ${format.number(state.scanned)} instances so far …`
    : state.found && `Looked at ${format.number(state.scanned)} ${state.scanned === 1 ? 'instance' : 'instances'} for this page.`;
  const untold = state.failed ? ` Of ${format.number(state.failed)} the condition cannot be told; the first is ${state.failure}` : '';
  const shown = state.refused ? '' : `${text || 'Loading …'}${untold}`;
  return h('div', { class: 'progress', 'data-key': 'progress' }, h('span', { class: 'faint', role: 'status' }, shown),
    state.looking ? button('Stop', stop) : null);
}

function list({ found, looking }) {
  if (!found) return h('div', { 'data-key': 'list' });
  const columns = [
    { title: 'Instance', head: true, show: (item) => [h('a', { href: router.instance(item.saga, item.correlation) }, item.correlation), item.reference ? h('div', { class: 'faint' }, item.reference) : null] },
    { title: 'Definition', show: (item) => [item.saga, ' ', h('span', { class: 'faint' }, `v${item.program.version}`)] },
    { title: 'Status', show: (item) => badge(item.status, item.paused) },
    { title: 'Waits for', class: 'waits', show: (item) => waits(item) },
    { title: 'Changed', show: (item) => time(item.updated_at) },
    { title: 'Began', show: (item) => time(item.created_at) },
  ];
  return h('div', { 'data-key': 'list' }, table({
    caption: 'Instances', columns, rows: found, key: (item) => `${item.saga}/${item.correlation}`,
    empty: looking ? 'None so far.' : 'No instance fits. Take away a filter.',
  }));
}

function waits(item) {
  if (item.status === 'stuck' && item.last_error) return h('span', { class: 'bad-text' }, item.last_error.message);
  const all = waiting(item.waits);
  const shown = all.slice(0, 2).map(({ names, kind, until }) => h('div', {}, names, ' ', h('span', { class: 'faint' }, kind, until ? [', ', time(until)] : null)));
  return all.length > 2 ? [...shown, h('div', { class: 'faint' }, `and ${all.length - 2} more`)] : shown;
}
