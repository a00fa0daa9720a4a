// Instance list with filters and paging. A request scans a bounded number of instances, so the view sends requests until the page
// is full, and displays the progress.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import * as caller from '../caller.js';
import { openBatchForm } from '../batches.js';
import { badge, button, field, groupWaits, pager, referenceText, table, time, turnPage } from '../components.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 50;
/** Number of scanned instances above which a page is refreshed on demand only. */
const MAX_POLLED_SCAN = 5000;
const STATUSES = ['running', 'compensating', 'stuck', 'completed', 'failed', 'cancelled'];
const UPDATED_WITHIN = [['', 'any time'], ['900', 'the last 15 minutes'], ['3600', 'the last hour'], ['86400', 'the last day'], ['604800', 'the last week']];
const LAST_UPDATED = [['', 'any time'], ['900', 'more than 15 minutes ago'], ['3600', 'more than an hour ago'], ['86400', 'more than a day ago'], ['604800', 'more than a week ago']];

export async function open(page) {
  page.title('Instances');
  const definitions = await api.all('/v1/definitions').catch(() => []);
  const sagas = [...new Set(definitions.map((definition) => definition.saga))];
  const state = { cursors: [''], scanned: 0, items: null, loading: false, stopped: false };
  const filters = Object.fromEntries(page.query);

  const render = () => page.render(filterForm(sagas, filters, changeFilter), progress(state, filters, stop), list(state), pager(state, changePage));
  const refresh = page.poll(async (signal) => {
    if (!state.forced && (state.rejected || (state.items && state.scanned > MAX_POLLED_SCAN))) return;
    Object.assign(state, { forced: false, rejected: false });
    try {
      await load(state, filters, signal, render);
    } catch (error) {
      // An invalid filter has no matches; the previous list would look like its result.
      if (error.status === 400) {
        Object.assign(state, { items: null, nextCursor: null, loading: false, rejected: true });
        render();
      }
      throw error;
    }
    render();
  }, INTERVAL_MS);
  render();

  function reload() {
    state.forced = true;
    refresh();
  }
  function changeFilter(name, value) {
    if (value) filters[name] = value;
    else delete filters[name];
    router.go(router.to(['instances'], filters), true);
    Object.assign(state, { cursors: [''], stopped: true });
    reload();
  }
  function changePage(forward) {
    turnPage(state, forward);
    reload();
  }
  function stop() {
    state.stopped = true;
  }
}

/** Sends requests until the page is full or no rows are left. */
async function load(state, filters, signal, render) {
  state.stopped = false;
  const items = [];
  let [cursor, scanned, filterErrors, firstFilterError] = [state.cursors.at(-1), 0, 0, null];
  do {
    const result = await api.get('/v1/sagas', { ...query(filters), limit: PAGE_SIZE - items.length, cursor }, signal);
    items.push(...result.items);
    scanned += result.scanned;
    filterErrors += result.filter_errors;
    firstFilterError ??= result.first_filter_error;
    cursor = result.next_cursor;
    if (cursor && items.length < PAGE_SIZE && !state.stopped) {
      Object.assign(state, { loading: true, scanned, items: state.items ?? items });
      render();
    }
  } while (cursor && items.length < PAGE_SIZE && !state.stopped);
  Object.assign(state, { items, nextCursor: cursor, scanned, filterErrors, firstFilterError, loading: false });
}

function query({ saga, status, prefix, filter, within, before }) {
  const secondsAgo = (seconds) => (seconds ? new Date(format.now() - seconds * 1000).toISOString() : undefined);
  return { saga, status, prefix, filter, updated_from: secondsAgo(within), updated_until: secondsAgo(before) };
}

/** Returns the filters as body fields of a batch. */
function selection(filters) {
  const { status, ...others } = query(filters);
  // Without a status, not an empty list: that is rejected, because it would select all instances.
  return { ...others, status: status ? status.split(',').filter(Boolean) : undefined };
}

function filterForm(sagas, filters, onChange) {
  const selected = (filters.status ?? '').split(',').filter(Boolean);
  const options = (pairs) => pairs.map(([value, title]) => h('option', { value }, title));
  const names = filters.saga && !sagas.includes(filters.saga) ? [filters.saga, ...sagas] : sagas;
  const select = (name, pairs) => h('select', { value: filters[name] ?? '', on: { change: (event) => onChange(name, event.target.value) } }, options(pairs));
  const toggle = (status) => (event) => {
    const others = selected.filter((other) => other !== status);
    onChange('status', (event.target.checked ? [...others, status] : others).join(','));
  };
  let timer;
  const inputPrefix = (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => onChange('prefix', event.target.value.trim()), 250);
  };
  return h('form', { class: 'filters', role: 'search', 'aria-label': 'Filters', 'data-key': 'filters', on: { submit: (event) => event.preventDefault() } },
    field('Definition', select('saga', [['', 'all'], ...names.map((saga) => [saga, saga])])),
    field('ID prefix', h('input', { type: 'search', value: filters.prefix ?? '', autocomplete: 'off', on: { input: inputPrefix } })),
    field('Updated within', select('within', UPDATED_WITHIN)),
    field('Last updated', select('before', LAST_UPDATED)),
    h('div', { class: 'cel-filter' }, field('Filter (CEL)', h('input', {
      type: 'text', class: 'code', value: filters.filter ?? '', placeholder: "vars.total > 1000 && waits.exists(w, w.name == 'charge')",
      autocomplete: 'off', spellcheck: 'false', on: { change: (event) => onChange('filter', event.target.value.trim()) },
    }), 'CEL over the fields and state of an instance. Press Enter to search. The filter scans every instance that matches the other filters.')),
    h('fieldset', {}, h('legend', {}, 'Status'), STATUSES.map((status) => h('label', { class: 'chip' },
      h('input', { type: 'checkbox', checked: selected.includes(status), on: { change: toggle(status) } }), badge(status)))));
}

function progress(state, filters, stop) {
  const scanned = `Scanned ${format.plural(state.scanned, 'instance')}`;
  const text = state.loading ? `${scanned} so far…` : state.items && `${scanned} for this page.`;
  const errors = state.filterErrors ? ` ${format.plural(state.filterErrors, 'filter error')}; first error: ${state.firstFilterError}` : '';
  const message = state.rejected ? '' : `${text || 'Loading…'}${errors}`;
  return h('div', { class: 'progress', 'data-key': 'progress' }, h('span', { class: 'muted', role: 'status' }, message),
    state.loading ? button('Stop', stop) : null,
    caller.can('control') && state.items && filters.saga ? button('Batch for all matches', () => openBatchForm(selection(filters))) : null);
}

function list({ items, loading }) {
  if (!items) return h('div', { 'data-key': 'list' });
  const columns = [
    { title: 'Instance', head: true, render: (item) => [h('a', { href: router.instance(item.saga, item.correlation) }, item.correlation), item.reference ? h('div', { class: 'muted' }, referenceText(item.reference)) : null] },
    { title: 'Definition', render: (item) => [item.saga, ' ', h('span', { class: 'muted' }, `v${item.definition.version}`)] },
    { title: 'Status', render: (item) => badge(item.status, item.paused) },
    { title: 'Waiting for', class: 'waits', render: (item) => waits(item) },
    { title: 'Updated', render: (item) => time(item.updated_at) },
    { title: 'Started', render: (item) => time(item.created_at) },
  ];
  return h('div', { 'data-key': 'list' }, table({
    caption: 'Instances', columns, rows: items, key: (item) => `${item.saga}/${item.correlation}`,
    empty: loading ? 'No matches yet.' : 'No matching instances. Remove a filter.',
  }));
}

function waits(item) {
  if (['stuck', 'unapplied_result'].includes(item.attention) && item.last_error) return h('span', { class: 'error-text' }, item.last_error.message);
  const groups = groupWaits(item.waits);
  const first = groups.slice(0, 2).map(({ names, kind, until }) => h('div', {}, names, ' ', h('span', { class: 'muted' }, format.words(kind), until ? [', ', time(until)] : null)));
  return groups.length > 2 ? [...first, h('div', { class: 'muted' }, `and ${groups.length - 2} more`)] : first;
}
