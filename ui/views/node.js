// The node: how its parts do, its shards, its upstreams with their breakers, the work outside, the deepest mailboxes.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { facts, json, mark, more, section, table, time } from '../components.js';

const EVERY = 5000;
const HEALTH = { ok: 'completed', degraded: 'compensating', down: 'stuck' };
const BREAKERS = { closed: 'completed', half_open: 'compensating', open: 'stuck' };

export function open(page) {
  page.title('Node');
  page.follow(async (signal) => {
    const [info, health, mailboxes, work] = await Promise.all([
      api.get('/info', {}, signal).catch(hidden),
      api.look('/health', signal),
      api.get('/v1/mailboxes', { limit: 10 }, signal),
      api.get('/v1/work', {}, signal),
    ]);
    page.title('Node', mark(health.status, HEALTH[health.status] ?? 'plain'));
    const inside = info
      ? [parts(info, health), upstreams(info), shards(info), pods(info)]
      : [section('How it does', {}, h('p', {}, 'What is inside the node is shown to those who may act for all tenants.'))];
    page.draw(inside, boxes(mailboxes), jobs(work), info ? more('Bounds', json(info.limits, 'Bounds')) : null);
  }, EVERY);
}

/** Who acts for one tenant is not told of the whole node. */
function hidden(error) {
  if (error instanceof api.Problem && error.isAccess) return null;
  throw error;
}

function parts(info, health) {
  const names = Object.keys(health).filter((name) => health[name]?.status);
  const part = (name) => [name, h('span', {}, mark(health[name].status, HEALTH[health[name].status] ?? 'plain'), health[name].detail ? ` ${health[name].detail}` : null)];
  return section('How it does', {}, facts([
    ['Node', info.node],
    ['Version', info.version],
    ['Roles', info.roles.join(', ')],
    ['Started', time(info.started_at)],
    ['Takes work', info.accepting ? 'yes' : 'no, it drains'],
    ['Durability', Object.entries(info.durability).map(([name, how]) => `${name}: ${how}`).join('; ')],
    ...names.map(part),
  ]));
}

function upstreams({ upstreams, effects }) {
  const performed = (name) => Object.entries(effects).filter(([, by]) => by.split(', ').includes(name)).map(([effect]) => effect).join(', ');
  const columns = [
    { title: 'Upstream', head: true, show: (upstream) => upstream.name },
    { title: 'Breaker', show: (upstream) => (upstream.breaker ? mark(upstream.breaker, BREAKERS[upstream.breaker]) : h('span', { class: 'faint' }, 'none')) },
    { title: 'Times opened', number: true, show: (upstream) => format.number(upstream.opened) },
    { title: 'At work on', number: true, show: (upstream) => format.number(upstream.in_flight) },
    { title: 'Retries left', number: true, show: (upstream) => (upstream.retries_left === null ? 'no limit' : format.number(upstream.retries_left)) },
    { title: 'Performs', show: (upstream) => performed(upstream.name) || h('span', { class: 'faint' }, 'commands') },
  ];
  return section('Upstreams', {}, table({ caption: 'Upstreams and their breakers', columns, rows: upstreams, key: (upstream) => upstream.name, empty: 'No upstreams are configured.' }));
}

function shards({ shards }) {
  const columns = [
    { title: 'Shard', head: true, show: (shard) => shard.shard },
    { title: 'Slots', show: (shard) => `${shard.first_slot} to ${shard.last_slot}` },
    { title: 'Commits', number: true, show: (shard) => format.number(shard.position) },
    { title: 'Outbox', number: true, show: (shard) => format.number(shard.outbox) },
    { title: 'On disk', number: true, show: (shard) => format.bytes(shard.disk_bytes) },
  ];
  return section('Shards', {}, table({ caption: 'Shards of this node', columns, rows: shards, key: (shard) => shard.shard, empty: 'This node has no shards.' }));
}

function pods({ cluster }) {
  if (!cluster) return null;
  const rows = Object.entries(cluster.pods).map(([name, pod]) => ({ name, ...pod, shards: Object.keys(cluster.shards).filter((shard) => cluster.shards[shard] === name) }));
  const orphans = Object.keys(cluster.shards).filter((shard) => !cluster.shards[shard]);
  const columns = [
    { title: 'Pod', head: true, show: (pod) => pod.name },
    { title: 'At', show: (pod) => pod.url },
    { title: 'Shards', show: (pod) => pod.shards.join(', ') || 'none' },
    { title: 'Takes work', show: (pod) => (pod.draining ? mark('draining', 'compensating') : mark('yes', 'completed')) },
  ];
  return section('Pods', { aside: cluster.current ? null : h('span', { class: 'bad-text' }, 'the servers cannot be reached: this may be old') },
    table({ caption: 'Pods that share the shards', columns, rows, key: (pod) => pod.name }),
    orphans.length ? h('p', { class: 'bad-text' }, `Nobody runs shard ${orphans.join(', ')} at this moment.`) : null);
}

function boxes({ items }) {
  const columns = [
    { title: 'Instance', head: true, show: (box) => h('a', { href: router.instance(box.saga, box.correlation) }, `${box.saga} ${box.correlation}`) },
    { title: 'Inputs that wait', number: true, show: (box) => format.number(box.depth) },
  ];
  return section('Deepest mailboxes', {}, table({ caption: 'Deepest mailboxes', columns, rows: items, key: (box) => `${box.saga}/${box.correlation}`, empty: 'Nothing waits in a mailbox.' }));
}

function jobs({ items }) {
  if (!items.length) return null;
  const columns = [
    { title: 'Effect', head: true, show: (job) => job.effect },
    { title: 'Instance', show: (job) => h('a', { href: router.instance(job.saga, job.correlation) }, `${job.saga} ${job.correlation}`) },
    { title: 'Worker', show: (job) => job.worker ?? h('span', { class: 'faint' }, 'nobody yet') },
    { title: 'Claim holds', show: (job) => time(job.expires_at) },
    { title: 'Claims', number: true, show: (job) => format.number(job.claims) },
  ];
  return section('Work outside', {}, table({ caption: 'Jobs of workers outside', columns, rows: items.slice(0, 50), key: (job) => job.job }));
}
