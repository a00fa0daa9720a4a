// What needs a person, how fast it goes, what there is: the page for three in the morning.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { atLeast, badge, figure, icon, section, table, time } from '../components.js';

const EVERY = 2000;
/** Points of a line. */
const POINTS = 40;
/** Work that waits longer than this needs a look, in milliseconds. */
const LONG = 60_000;
const STATUSES = ['running', 'compensating', 'stuck', 'completed', 'failed', 'cancelled'];

export function open(page) {
  page.title('Overview');
  const rates = follow();
  page.follow(async (signal) => {
    const [overview, info] = await Promise.all([
      api.get('/v1/overview', {}, signal),
      api.get('/info', {}, signal).catch(() => null),
    ]);
    format.nodeTime(overview.now);
    rates.note(overview);
    draw(page, overview, info, rates);
  }, EVERY);
}

/** Rates come from counters that are read twice. */
function follow() {
  const lines = { events: [], transitions: [], attempts: [], outbox: [] };
  let before;
  return {
    lines,
    note({ now, totals, depths, node }) {
      const at = Date.parse(now);
      if (before && before.started === node.started_at && at > before.at) {
        const seconds = (at - before.at) / 1000;
        for (const name of ['events', 'transitions', 'attempts']) {
          push(lines[name], Math.max(totals[name] - before.totals[name], 0) / seconds);
        }
      }
      push(lines.outbox, depths.outbox);
      before = { at, totals, started: node.started_at };
    },
    last: (name) => lines[name].at(-1),
  };
}

function push(points, value) {
  points.push(value);
  if (points.length > POINTS) points.shift();
}

function draw(page, overview, info, rates) {
  const { node, depths, counts } = overview;
  page.title('Overview', h('span', { class: 'faint' }, `node ${node.name}, up `, format.duration(format.now() - Date.parse(node.started_at))));
  page.draw(
    attention(overview, info),
    section('How it goes', {}, h('div', { class: 'figures' },
      speed('Events', rates, 'events'),
      speed('Transitions', rates, 'transitions'),
      speed('Attempts', rates, 'attempts'),
      figure('Work in the outbox', format.compact(depths.outbox), { points: rates.lines.outbox, hint: 'items not done' }),
      figure('Instances in memory', format.compact(depths.live_instances), { hint: `deepest mailbox ${format.number(depths.deepest_mailbox)}` }),
      figure('Next timer', depths.next_timer ? time(depths.next_timer) : 'none', { hint: 'of all tenants', href: router.to(['timers']) }),
    )),
    counts ? instances(counts) : section('Instances', {}, h('p', { class: 'empty' }, 'Being counted for the first time …')),
    counts ? still(counts) : null,
    lanes(overview),
  );
}

function speed(title, rates, name) {
  const last = rates.last(name);
  return figure(title, last === undefined ? '…' : format.rate(last), { points: rates.lines[name], hint: 'per second' });
}

/** Everything that may need a person, the worst first; or that there is nothing. */
function attention({ node, lanes, counts }, info) {
  const found = [];
  const add = (look, text, href, since) => found.push({ look, text, href, since });
  if (!node.up) add('bad', 'A shard is restarting.', router.to(['node']));
  if (!node.room) add('bad', 'There is no room in the store: new work is refused.', router.to(['node']));
  if (!node.accepting) add('warn', 'The node is draining and takes no new work.', router.to(['node']));
  for (const upstream of info?.upstreams ?? []) {
    if (upstream.breaker === 'open') add('bad', `The breaker of ${upstream.name} is open: nothing is sent there until it answers again.`, router.to(['node']));
    if (upstream.breaker === 'half_open') add('warn', `The breaker of ${upstream.name} is half open: one call at a time tries whether it answers again.`, router.to(['node']));
  }
  if (counts?.stuck.length) {
    const count = counts.instances.filter((group) => group.status === 'stuck').reduce((sum, group) => sum + group.count, 0);
    add('bad', `${format.plural(count, 'instance is', 'instances are')} stuck: an undo failed, and a person must decide.`, router.to(['instances'], { status: 'stuck' }), counts.stuck[0].since);
  }
  if (counts?.dead_letters.count) {
    const { count, complete } = counts.dead_letters;
    add('warn', `${atLeast(count, complete)} dead ${count === 1 ? 'letter waits' : 'letters wait'} for somebody to mend the cause.`, router.to(['letters']));
  }
  if (counts?.tasks.overdue) {
    add('warn', `${format.plural(counts.tasks.overdue, 'task is', 'tasks are')} past the due date.`, router.to(['tasks']));
  }
  for (const lane of lanes.filter((lane) => format.now() - Date.parse(lane.oldest) > LONG).slice(0, 5)) {
    add('warn', `Work for ${lane.name || 'the bus'} (${lane.kind}) is not done.`, router.to(['node']), lane.oldest);
  }
  const rows = found.map(({ look, text, href, since }) => h('li', { class: look, 'data-key': text.replaceAll(/\d+/g, '#') },
    icon(look === 'bad' ? 'stuck' : 'open'), h('a', { href }, text), since ? h('span', { class: 'faint' }, `for ${format.duration(format.now() - Date.parse(since))}`) : null));
  const calm = h('p', { class: 'calm' }, icon('completed'), 'Nothing needs you.');
  return section('What needs you', { class: 'attention' }, rows.length ? h('ul', { class: 'alerts' }, rows) : calm);
}

function instances(counts) {
  const sagas = new Map();
  for (const group of counts.instances) {
    const row = sagas.get(group.saga) ?? { saga: group.saga, of: {}, paused: 0, all: 0 };
    row.of[group.status] = (row.of[group.status] ?? 0) + group.count;
    row.all += group.count;
    if (group.paused) row.paused += group.count;
    sagas.set(group.saga, row);
  }
  const least = counts.complete ? '' : '≥ ';
  const link = (count, query) => (count ? h('a', { href: router.to(['instances'], query) }, least + format.number(count)) : h('span', { class: 'faint' }, '0'));
  const columns = [
    { title: 'Definition', head: true, show: (row) => h('a', { href: router.to(['definitions', row.saga]) }, row.saga) },
    ...STATUSES.map((status) => ({ title: status, number: true, show: (row) => link(row.of[status], { saga: row.saga, status }) })),
    { title: 'paused', number: true, show: (row) => (row.paused ? format.number(row.paused) : h('span', { class: 'faint' }, '0')) },
    { title: 'all', number: true, show: (row) => link(row.all, { saga: row.saga }) },
  ];
  const took = format.duration(counts.took_ms);
  return section('Instances', { aside: h('span', { class: 'faint' }, `counted ${format.ago(counts.at)} in ${took}`) }, table({
    caption: 'Instances by definition and status', columns, rows: [...sagas.values()], key: (row) => row.saga,
    empty: 'No instances yet. Publish an event that begins one.',
  }));
}

function still({ stuck, quiet }) {
  const columns = [
    { title: 'Instance', head: true, show: (row) => h('a', { href: router.instance(row.saga, row.correlation) }, row.correlation) },
    { title: 'Definition', show: (row) => row.saga },
    { title: 'Status', show: (row) => badge(row.status, row.paused) },
    { title: 'Unchanged since', show: (row) => time(row.since) },
  ];
  const of = (rows, caption, empty) => table({ caption, columns, rows, key: (row) => `${row.saga}/${row.correlation}`, empty });
  return h('div', { class: 'two', 'data-key': 'still' },
    section('Stuck for longest', {}, of(stuck.slice(0, 8), 'Stuck for longest', 'No instance is stuck.')),
    section('Quiet for longest', {}, of(quiet.slice(0, 8), 'Running or undoing, unchanged for longest', 'No instance is under way.')));
}

function lanes({ lanes }) {
  return section('Where work waits', {}, table({
    caption: 'Work in the outbox by destination',
    columns: [
      { title: 'Destination', head: true, show: (lane) => lane.name || 'the bus' },
      { title: 'Kind', show: (lane) => lane.kind },
      { title: 'Oldest item', show: (lane) => time(lane.oldest) },
    ],
    rows: lanes.slice(0, 10), key: (lane) => `${lane.kind} ${lane.name}`, empty: 'The outbox is empty.',
  }));
}
