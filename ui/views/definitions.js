// Active definitions and the number of their instances in this tenant.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { section, table, time } from '../components.js';

const INTERVAL_MS = 10_000;
const FINAL_STATUSES = ['completed', 'failed', 'cancelled'];

export function open(page) {
  page.title('Definitions', caller.can('admin') && h('a', { class: 'button', href: router.to(['deploy']) }, 'Deploy'));
  page.poll(async (signal) => {
    const [items, { counts }] = await Promise.all([api.all('/v1/definitions', {}, signal), api.get('/v1/overview', {}, signal)]);
    page.render(list(items, counts));
  }, INTERVAL_MS);
}

/** Counts the live and the ended instances of the matching groups, and their versions. */
export function countInstances(counts, matches) {
  const groups = (counts?.instances ?? []).filter(matches);
  const sum = (selected) => selected.reduce((total, group) => total + group.count, 0);
  const ended = groups.filter((group) => FINAL_STATUSES.includes(group.status));
  return { live: sum(groups) - sum(ended), ended: sum(ended), versions: new Set(groups.map((group) => group.hash)).size };
}

/** Returns the owner of a definition. */
export const ownerOf = ({ context }) => (context ? `context ${context}` : 'shared');

function list(items, counts) {
  const countsOf = (item) => countInstances(counts, (group) => group.saga === item.saga);
  const columns = [
    { title: 'Definition', head: true, render: (item) => h('a', { href: router.to(['definitions', item.saga]) }, item.saga) },
    { title: 'Version', number: true, render: (item) => `v${item.version}` },
    { title: 'Owner', render: ownerOf },
    { title: 'Live instances', number: true, render: (item) => h('a', { href: router.to(['instances'], { saga: item.saga, status: 'running,compensating,stuck' }) }, format.number(countsOf(item).live)) },
    { title: 'Ended', number: true, render: (item) => format.number(countsOf(item).ended) },
    { title: 'Versions in use', number: true, render: (item) => format.number(countsOf(item).versions) },
    { title: 'Start events', render: (item) => item.events.filter((event) => event.starts).map((event) => event.type).join(', ') },
    { title: 'File', render: (item) => item.file ?? h('span', { class: 'muted' }, item.deployed_at ? '–' : 'built-in') },
    { title: 'Active since', render: (item) => time(item.deployed_at) },
  ];
  return section('Active', { aside: counts && !counts.complete ? 'counts are lower bounds' : null }, table({ caption: 'Active definitions', columns, rows: items, key: (item) => item.saga, empty: ['No definitions. Pass a directory with --definitions-dir or run ', h('code', {}, 'orlog deploy'), '.'] }));
}
