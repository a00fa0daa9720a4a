// Overview: issues that need attention, rates, instance counts and the outbox.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { atLeast, badge, icon, section, stat, table, time } from '../components.js';

const INTERVAL_MS = 2000;
/** Number of points of a sparkline. */
const MAX_POINTS = 40;
/** Age after which the work of a destination is delayed, in milliseconds. */
const DELAYED_MS = 60_000;
const STATUSES = ['running', 'compensating', 'stuck', 'completed', 'failed', 'cancelled'];

export function open(page) {
  page.title('Overview');
  const rates = trackRates();
  page.poll(async (signal) => {
    const [overview, info] = await Promise.all([
      api.get('/v1/overview', {}, signal),
      api.get('/info', {}, signal).catch(() => null),
    ]);
    format.setNodeTime(overview.now);
    if (overview.totals) rates.add(overview);
    render(page, overview, info, rates);
  }, INTERVAL_MS);
}

/** Computes rates from the difference between two responses. */
function trackRates() {
  const series = { events: [], transitions: [], attempts: [], outbox: [] };
  let previous;
  return {
    series,
    add({ now, totals, depths, node }) {
      const at = Date.parse(now);
      if (previous && previous.startedAt === node.started_at && at > previous.at) {
        const seconds = (at - previous.at) / 1000;
        for (const name of ['events', 'transitions', 'attempts']) {
          push(series[name], Math.max(totals[name] - previous.totals[name], 0) / seconds);
        }
      }
      push(series.outbox, depths.outbox);
      previous = { at, totals, startedAt: node.started_at };
    },
    last: (name) => series[name].at(-1),
  };
}

function push(points, value) {
  points.push(value);
  if (points.length > MAX_POINTS) points.shift();
}

function render(page, overview, info, rates) {
  const { node, depths, counts } = overview;
  page.title('Overview', h('span', { class: 'muted' }, `node ${node.name}, uptime `, format.duration(format.now() - Date.parse(node.started_at))));
  page.render(
    issues(overview, info),
    depths ? activity(depths, rates) : null,
    counts ? instances(counts) : section('Instances', {}, h('p', { class: 'empty' }, 'First count in progress…')),
    counts ? unchanged(counts) : null,
    outbox(overview),
  );
}

/** Totals and depths of the node. Only callers with access to all tenants receive them. */
function activity(depths, rates) {
  return section('Activity', {}, h('div', { class: 'stats' },
    rate('Events', rates, 'events'),
    rate('Transitions', rates, 'transitions'),
    rate('Attempts', rates, 'attempts'),
    stat('Outbox depth', format.compact(depths.outbox), { points: rates.series.outbox, hint: 'work items' }),
    stat('Live instances', format.compact(depths.live_instances), { hint: `max mailbox depth ${format.number(depths.deepest_mailbox)}` }),
    stat('Next timer', depths.next_timer ? time(depths.next_timer) : 'none', { hint: 'all tenants', href: router.to(['timers']) })));
}

function rate(title, rates, name) {
  const last = rates.last(name);
  return stat(title, last === undefined ? '…' : format.rate(last), { points: rates.series[name], hint: 'per second' });
}

/** Issues that may need attention, errors first. */
function issues({ node, destinations, counts }, info) {
  const entries = [];
  const add = (severity, text, href, since) => entries.push({ severity, text, href, since });
  if (!node.healthy) add('error', 'A shard is restarting.', router.to(['node']));
  if (!node.has_capacity) add('error', 'The store is full: new work is rejected.', router.to(['node']));
  if (!node.accepting) add('warning', 'The node is draining and accepts no new work.', router.to(['node']));
  for (const upstream of info?.upstreams ?? []) {
    if (upstream.breaker === 'open') add('error', `The circuit breaker of ${upstream.name} is open: no calls until the next probe succeeds.`, router.to(['node']));
    if (upstream.breaker === 'half_open') add('warning', `The circuit breaker of ${upstream.name} is half-open: probing one call at a time.`, router.to(['node']));
  }
  if (counts?.stuck.length) {
    const count = counts.instances.filter((group) => group.status === 'stuck').reduce((sum, group) => sum + group.count, 0);
    add('error', `${format.plural(count, 'instance is', 'instances are')} stuck: a compensation failed and needs an operator decision.`, router.to(['instances'], { status: 'stuck' }), counts.stuck[0].since);
  }
  if (counts?.unapplied.length) {
    const href = router.to(['instances'], { filter: "attention == 'unapplied_result'" });
    add('error', `${format.plural(counts.unapplied.length, 'instance waits', 'instances wait')} for a result that could not be applied: correct the cause and redrive the dead letter.`, href, counts.unapplied[0].since);
  }
  if (counts?.dead_letters.count) {
    const { count, complete } = counts.dead_letters;
    add('warning', `${atLeast(count, complete)} dead ${count === 1 ? 'letter waits' : 'letters wait'} for a fix and a redrive.`, router.to(['dead-letters']));
  }
  if (counts?.tasks.overdue) {
    add('warning', `${format.plural(counts.tasks.overdue, 'task is', 'tasks are')} overdue.`, router.to(['tasks']));
  }
  const delayed = destinations.filter((destination) => format.now() - Date.parse(destination.oldest) > DELAYED_MS);
  for (const destination of delayed.slice(0, 5)) {
    add('warning', `Work for ${destination.name || 'the bus'} (${destination.kind}${destination.priority === 'normal' ? '' : `, ${destination.priority}`}) is delayed.`, router.to(['node']), destination.oldest);
  }
  const rows = entries.map(({ severity, text, href, since }) => h('li', { class: severity, 'data-key': text.replaceAll(/\d+/g, '#') },
    icon(severity === 'error' ? 'stuck' : 'open'), h('a', { href }, text), since ? h('span', { class: 'muted' }, `for ${format.duration(format.now() - Date.parse(since))}`) : null));
  const none = h('p', { class: 'ok' }, icon('completed'), 'No issues.');
  return section('Needs attention', {}, rows.length ? h('ul', { class: 'alerts' }, rows) : none);
}

function instances(counts) {
  const sagas = new Map();
  for (const group of counts.instances) {
    const row = sagas.get(group.saga) ?? { saga: group.saga, byStatus: {}, paused: 0, total: 0 };
    row.byStatus[group.status] = (row.byStatus[group.status] ?? 0) + group.count;
    row.total += group.count;
    if (group.paused) row.paused += group.count;
    sagas.set(group.saga, row);
  }
  const bound = counts.complete ? '' : '≥ ';
  const link = (count, query) => (count ? h('a', { href: router.to(['instances'], query) }, bound + format.number(count)) : h('span', { class: 'muted' }, '0'));
  const columns = [
    { title: 'Definition', head: true, render: (row) => h('a', { href: router.to(['definitions', row.saga]) }, row.saga) },
    ...STATUSES.map((status) => ({ title: status, number: true, render: (row) => link(row.byStatus[status], { saga: row.saga, status }) })),
    { title: 'paused', number: true, render: (row) => (row.paused ? format.number(row.paused) : h('span', { class: 'muted' }, '0')) },
    { title: 'all', number: true, render: (row) => link(row.total, { saga: row.saga }) },
  ];
  const duration = format.duration(counts.duration_ms);
  return section('Instances', { aside: h('span', { class: 'muted' }, `counted ${format.relative(counts.at)} in ${duration}`) }, table({
    caption: 'Instances by definition and status', columns, rows: [...sagas.values()], key: (row) => row.saga,
    empty: 'No instances yet. Publish a start event.',
  }));
}

function unchanged(counts) {
  const columns = [
    { title: 'Instance', head: true, render: (row) => h('a', { href: router.instance(row.saga, row.correlation) }, row.correlation) },
    { title: 'Definition', render: (row) => row.saga },
    { title: 'Status', render: (row) => badge(row.status, row.paused) },
    { title: 'Unchanged since', render: (row) => time(row.since) },
  ];
  const list = (rows, caption, empty) => table({ caption, columns, rows: rows.slice(0, 8), key: (row) => `${row.saga}/${row.correlation}`, empty });
  return h('div', { class: 'columns', 'data-key': 'unchanged' },
    section('Longest stuck', {}, list(counts.stuck, 'Longest stuck', 'No stuck instances.')),
    section('Longest unchanged', {}, list(counts.longest_unchanged, 'Running or compensating instances, longest unchanged first', 'No active instances.')));
}

function outbox({ destinations }) {
  return section('Outbox by destination', {}, table({
    caption: 'Outbox depth by destination',
    columns: [
      { title: 'Destination', head: true, render: (destination) => destination.name || 'the bus' },
      { title: 'Kind', render: (destination) => destination.kind },
      { title: 'Priority', render: (destination) => destination.priority },
      { title: 'Oldest item', render: (destination) => time(destination.oldest) },
    ],
    rows: destinations.slice(0, 10), key: (destination) => `${destination.kind} ${destination.name} ${destination.priority}`, empty: 'The outbox is empty.',
  }));
}
