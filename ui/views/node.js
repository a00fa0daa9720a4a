// The node: findings, health, upstreams with circuit breakers, shards, pods, deepest mailboxes, external jobs and limits.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { definitionList, disclosure, icon, json, section, statusMark, table, time } from '../components.js';

const INTERVAL_MS = 5000;
const MAX_JOBS = 50;
const HEALTH_BADGES = { ok: 'completed', degraded: 'compensating', down: 'stuck' };
const BREAKER_BADGES = { closed: 'completed', half_open: 'compensating', open: 'stuck' };

export function open(page) {
  page.title('Node');
  page.poll(async (signal) => {
    const [info, diagnostics, health, mailboxes, work] = await Promise.all([
      api.get('/info', {}, signal).catch(nullIfDenied),
      api.get('/admin/diagnostics', {}, signal).catch(nullIfDenied),
      api.getAnyStatus('/health', signal),
      api.get('/v1/mailboxes', { limit: 10 }, signal),
      api.get('/v1/work', { limit: MAX_JOBS }, signal),
    ]);
    page.title('Node', healthMark(health.status));
    const nodeDetails = info
      ? [findings(diagnostics), components(info, health), upstreams(info), shards(info), pods(info)]
      : [section('Health', {}, h('p', {}, 'Node details require access to all tenants.'))];
    page.render(nodeDetails, mailboxList(mailboxes), jobs(work), info ? disclosure('Limits', json(info.limits, 'Limits')) : null);
  }, INTERVAL_MS);
}

/** Node information requires access to all tenants. */
function nullIfDenied(error) {
  if (error instanceof api.Problem && error.isAccessError) return null;
  throw error;
}

const healthMark = (status) => statusMark(status ?? 'unknown', HEALTH_BADGES[status] ?? 'plain');

/** Problems that the checks of the node found, errors first: a sentence and its remedy. */
function findings(diagnostics) {
  if (!diagnostics) return null;
  const found = diagnostics.checks.filter((check) => check.status !== 'ok').sort((a, b) => a.status.localeCompare(b.status));
  const rows = found.map(({ name, status, message, remedy }) => h('li', { class: status === 'error' ? 'error' : 'warning', 'data-key': `${name} ${message}`.replaceAll(/\d+/g, '#') },
    icon(status === 'error' ? 'stuck' : 'open'), h('span', {}, `${name}: ${message}`), remedy ? h('span', { class: 'muted' }, remedy) : null));
  const none = h('p', { class: 'ok' }, icon('completed'), 'No problems found.');
  return section('Findings', {}, rows.length ? h('ul', { class: 'alerts' }, rows) : none);
}

function components(info, health) {
  const names = Object.keys(health).filter((name) => health[name]?.status);
  const component = (name) => [name, h('span', {}, healthMark(health[name].status), health[name].detail ? ` ${health[name].detail}` : null)];
  return section('Health', {}, definitionList([
    ['Node', info.node],
    ['Version', info.version],
    ['Roles', info.roles.join(', ')],
    ['Started', time(info.started_at)],
    ['Accepting work', info.accepting ? 'yes' : 'no, draining'],
    ['Durability', Object.entries(info.durability).map(([name, mode]) => `${name}: ${mode}`).join('; ')],
    ...names.map(component),
  ]));
}

function upstreams({ upstreams, effects }) {
  const effectsOf = (name) => Object.entries(effects).filter(([, names]) => names.split(', ').includes(name)).map(([effect]) => effect).join(', ');
  const columns = [
    { title: 'Upstream', head: true, render: (upstream) => upstream.name },
    { title: 'Circuit breaker', render: (upstream) => (upstream.breaker ? statusMark(upstream.breaker, BREAKER_BADGES[upstream.breaker]) : h('span', { class: 'muted' }, 'none')) },
    { title: 'Openings', number: true, render: (upstream) => format.number(upstream.breaker_open_count) },
    { title: 'In flight', number: true, render: (upstream) => format.number(upstream.in_flight) },
    { title: 'Retry budget', number: true, render: (upstream) => (upstream.remaining_retries === null ? 'unlimited' : format.number(upstream.remaining_retries)) },
    { title: 'Effects', render: (upstream) => effectsOf(upstream.name) || h('span', { class: 'muted' }, 'commands') },
  ];
  return section('Upstreams', {}, table({ caption: 'Upstreams and circuit breakers', columns, rows: upstreams, key: (upstream) => upstream.name, empty: 'No upstreams are configured.' }));
}

function shards({ shards }) {
  const columns = [
    { title: 'Shard', head: true, render: (shard) => shard.shard },
    { title: 'Slots', render: (shard) => `${shard.first_slot} to ${shard.last_slot}` },
    { title: 'Commits', number: true, render: (shard) => format.number(shard.position) },
    { title: 'Outbox depth', number: true, render: (shard) => (shard.outbox === null ? 'unknown' : format.number(shard.outbox)) },
    { title: 'Disk usage', number: true, render: (shard) => format.bytes(shard.disk_bytes) },
  ];
  return section('Shards', {}, table({ caption: 'Shards of this node', columns, rows: shards, key: (shard) => shard.shard, empty: 'This node has no shards.' }));
}

function pods({ cluster }) {
  if (!cluster) return null;
  const rows = Object.entries(cluster.pods).map(([name, pod]) => ({ name, ...pod, shards: Object.keys(cluster.shards).filter((shard) => cluster.shards[shard] === name) }));
  const unowned = Object.keys(cluster.shards).filter((shard) => !cluster.shards[shard]);
  const columns = [
    { title: 'Pod', head: true, render: (pod) => pod.name },
    { title: 'URL', render: (pod) => pod.url },
    { title: 'Shards', render: (pod) => pod.shards.join(', ') || 'none' },
    { title: 'Accepting work', render: (pod) => (pod.draining ? statusMark('draining', 'compensating') : statusMark('yes', 'completed')) },
  ];
  return section('Pods', { aside: cluster.current ? null : h('span', { class: 'error-text' }, 'servers unreachable: data may be stale') },
    table({ caption: 'Pods of the cluster', columns, rows, key: (pod) => pod.name }),
    unowned.length ? h('p', { class: 'error-text' }, `No owner for shard ${unowned.join(', ')}.`) : null);
}

function mailboxList({ items }) {
  const columns = [
    { title: 'Instance', head: true, render: (mailbox) => h('a', { href: router.instance(mailbox.saga, mailbox.correlation) }, `${mailbox.saga} ${mailbox.correlation}`) },
    { title: 'Mailbox depth', number: true, render: (mailbox) => format.number(mailbox.depth) },
  ];
  return section('Deepest mailboxes', {}, table({ caption: 'Deepest mailboxes', columns, rows: items, key: (mailbox) => `${mailbox.saga}/${mailbox.correlation}`, empty: 'All mailboxes are empty.' }));
}

function jobs({ items, next_cursor: next }) {
  if (!items.length) return null;
  const columns = [
    { title: 'Effect', head: true, render: (job) => job.effect },
    { title: 'Instance', render: (job) => h('a', { href: router.instance(job.saga, job.correlation) }, `${job.saga} ${job.correlation}`) },
    { title: 'Worker', render: (job) => job.worker ?? h('span', { class: 'muted' }, 'unclaimed') },
    { title: 'Claim expires', render: (job) => time(job.expires_at) },
    { title: 'Claims', number: true, render: (job) => format.number(job.claims) },
  ];
  const more = next ? h('span', { class: 'muted' }, `the first ${items.length}`) : null;
  return section('External jobs', { aside: more }, table({ caption: 'Jobs of external workers', columns, rows: items, key: (job) => job.job }));
}
