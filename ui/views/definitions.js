// Which definitions are in force, and how many instances of this tenant each version has.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { section, table, time } from '../components.js';

const EVERY = 10_000;
const FINAL = ['completed', 'failed', 'cancelled'];

export function open(page) {
  page.title('Definitions');
  page.follow(async (signal) => {
    const [{ items }, { counts }] = await Promise.all([api.get('/v1/definitions', {}, signal), api.get('/v1/overview', {}, signal)]);
    page.draw(list(items, counts));
  }, EVERY);
}

/** Of all versions of a saga, or of the one with this hash. */
export function counted(counts, fits) {
  const groups = (counts?.instances ?? []).filter(fits);
  const sum = (chosen) => chosen.reduce((all, group) => all + group.count, 0);
  const ended = groups.filter((group) => FINAL.includes(group.status));
  return { live: sum(groups) - sum(ended), ended: sum(ended), versions: new Set(groups.map((group) => group.hash)).size };
}

function list(items, counts) {
  const of = (item) => counted(counts, (group) => group.saga === item.saga);
  const columns = [
    { title: 'Definition', head: true, show: (item) => h('a', { href: router.to(['definitions', item.saga]) }, item.saga) },
    { title: 'Version', number: true, show: (item) => `v${item.version}` },
    { title: 'Live instances', number: true, show: (item) => h('a', { href: router.to(['instances'], { saga: item.saga, status: 'running,compensating,stuck' }) }, format.number(of(item).live)) },
    { title: 'Ended', number: true, show: (item) => format.number(of(item).ended) },
    { title: 'Versions with instances', number: true, show: (item) => format.number(of(item).versions) },
    { title: 'Begins with', show: (item) => item.events.filter((event) => event.starts).map((event) => event.type).join(', ') },
    { title: 'File', show: (item) => item.file ?? h('span', { class: 'faint' }, 'part of the program') },
    { title: 'In force since', show: (item) => time(item.deployed_at) },
  ];
  return section('In force', { aside: counts && !counts.complete ? 'counts say at least' : null }, table({ caption: 'Definitions in force', columns, rows: items, key: (item) => item.saga, empty: 'No definitions. Give a folder of *.saga.yaml with --definitions, or deploy one.' }));
}
