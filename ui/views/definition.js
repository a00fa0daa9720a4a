// One definition: its versions with their instances, its picture, its source.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { drawn } from '../graph.js';
import { facts, mark, more, section, table, time } from '../components.js';
import { counted } from './definitions.js';

const EVERY = 10_000;

export function open(page) {
  const [, saga] = page.parts;
  const url = api.path('v1', 'definitions', saga);
  let picture;
  let hash;
  page.title(saga);
  page.follow(async (signal) => {
    const [{ versions }, { counts }] = await Promise.all([api.get(url, {}, signal), api.get('/v1/overview', {}, signal)]);
    const [first] = versions;
    if (hash !== first.hash) {
      picture = await api.text(`${url}/graph.svg`, signal).catch(() => null);
      hash = first.hash;
    }
    page.title(saga, mark(first.in_force ? 'in force' : 'retired', first.in_force ? 'completed' : 'cancelled'));
    page.draw(
      list(versions, counts, saga),
      h('div', { class: 'split', 'data-key': 'split' },
        h('div', {}, picture ? section('Picture', {}, h('div', { class: 'picture', 'data-keep': hash }, drawn(picture, `${saga} version ${first.version}: its steps from top to bottom`))) : null),
        h('div', {}, uses(first), source(versions))),
    );
  }, EVERY);
}

function list(versions, counts, saga) {
  const of = (version) => counted(counts, (group) => group.saga === saga && group.hash === version.hash);
  const columns = [
    { title: 'Version', head: true, show: (version) => [`v${version.version} `, h('span', { class: 'id' }, version.hash.slice(0, 12))] },
    { title: 'Is', show: (version) => (version.in_force ? mark('in force', 'completed') : mark('retired', 'cancelled')) },
    { title: 'Live instances', number: true, show: (version) => format.number(of(version).live) },
    { title: 'Ended', number: true, show: (version) => format.number(of(version).ended) },
    { title: 'In force since', show: (version) => time(version.deployed_at, 'at') },
    { title: 'By', show: (version) => version.deployed_by ?? h('span', { class: 'faint' }, '–') },
    { title: 'Retired', show: (version) => time(version.retired_at, 'at') },
  ];
  const link = h('a', { href: router.to(['instances'], { saga }) }, 'Its instances');
  return section('Versions', { aside: link }, table({ caption: 'Versions', columns, rows: versions, key: (version) => version.hash }));
}

function uses(version) {
  const names = (list) => (list.length ? h('ul', { class: 'bare' }, list.map((name) => h('li', {}, h('code', {}, name)))) : null);
  return section('What it uses', {}, facts([
    ['Begins with', names(version.events.filter((event) => event.starts).map((event) => event.type))],
    ['Takes', names(version.events.filter((event) => !event.starts).map((event) => event.type))],
    ['Effects', names(version.effects)],
    ['Commands', names(version.commands)],
    ['Sagas', names(version.sagas)],
  ]));
}

function source(versions) {
  const shown = versions.filter((version) => version.source || version.module_bytes);
  if (!shown.length) return null;
  return section('Source', {}, shown.map((version) => more(`Version ${version.version}${version.file ? `, ${version.file}` : ''}`,
    version.source ? h('pre', { class: 'json', tabindex: '0', role: 'region', 'aria-label': `Source of version ${version.version}` }, version.source) : h('p', {}, `A WebAssembly module of ${format.bytes(version.module_bytes)}.`))));
}
