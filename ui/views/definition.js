// One definition: its versions with their instances, its graph, its dependencies and its source.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { renderGraph } from '../graph.js';
import { openStart } from '../start.js';
import { button, definitionList, disclosure, section, statusMark, table, time } from '../components.js';
import { countInstances, ownerOf } from './definitions.js';

const INTERVAL_MS = 10_000;

export function open(page) {
  const [, saga] = page.segments;
  const url = api.path('v1', 'definitions', saga);
  let graph;
  let hash;
  page.title(saga);
  page.poll(async (signal) => {
    const [versions, { counts }] = await Promise.all([api.all(url, {}, signal, 'versions'), api.get('/v1/overview', {}, signal)]);
    const [first] = versions;
    if (hash !== first.hash) {
      graph = await api.text(`${url}/graph.svg`, signal).catch(() => null);
      hash = first.hash;
    }
    page.title(saga, status(first), h('div', { class: 'buttons' }, startButtons(saga, first)));
    page.render(
      list(versions, counts, saga),
      h('div', { class: 'split', 'data-key': 'split' },
        h('div', {}, graph ? section('Graph', {}, h('div', { class: 'graph-frame', 'data-cache-key': hash }, renderGraph(graph, `${saga} version ${first.version}: steps from top to bottom`))) : null),
        h('div', {}, dependencies(first), source(versions))),
    );
  }, INTERVAL_MS);
}

const status = (version) => (version.active ? statusMark('active', 'completed') : statusMark('retired', 'cancelled'));

/** One button for each start event. */
function startButtons(saga, { events }) {
  const starts = caller.can('publish') ? events.filter((event) => event.starts) : [];
  return starts.map((event) => button(starts.length > 1 ? `Start with ${event.type}` : 'Start', () => openStart(saga, event), { variant: 'primary' }));
}

function list(versions, counts, saga) {
  const countsOf = (version) => countInstances(counts, (group) => group.saga === saga && group.hash === version.hash);
  const columns = [
    { title: 'Version', head: true, render: (version) => [`v${version.version} `, h('span', { class: 'id' }, version.hash.slice(0, 12))] },
    { title: 'Status', render: status },
    { title: 'Owner', render: ownerOf },
    { title: 'Live instances', number: true, render: (version) => format.number(countsOf(version).live) },
    { title: 'Ended', number: true, render: (version) => format.number(countsOf(version).ended) },
    { title: 'Active since', render: (version) => time(version.deployed_at, 'absolute') },
    { title: 'Deployed by', render: (version) => version.deployed_by ?? h('span', { class: 'muted' }, '–') },
    { title: 'Retired', render: (version) => time(version.retired_at, 'absolute') },
  ];
  const link = h('a', { href: router.to(['instances'], { saga }) }, 'Show instances');
  return section('Versions', { aside: link }, table({ caption: 'Versions', columns, rows: versions, key: (version) => `${version.context ?? ''} ${version.hash}` }));
}

function dependencies(version) {
  const list = (names) => (names.length ? h('ul', { class: 'plain-list' }, names.map((name) => h('li', {}, h('code', {}, name)))) : null);
  return section('Dependencies', {}, definitionList([
    ['Start events', list(version.events.filter((event) => event.starts).map((event) => event.type))],
    ['Events', list(version.events.filter((event) => !event.starts).map((event) => event.type))],
    ['Effects', list(version.effects)],
    ['Commands', list(version.commands)],
    ['Child sagas', list(version.sagas)],
  ]));
}

function source(versions) {
  const available = versions.filter((version) => version.source || version.module_bytes);
  if (!available.length) return null;
  return section('Source', {}, available.map((version) => disclosure(`Version ${version.version}${version.file ? `, ${version.file}` : ''}`,
    version.source ? h('pre', { class: 'json', tabindex: '0', role: 'region', 'aria-label': `Source of version ${version.version}` }, version.source) : h('p', {}, `WebAssembly module, ${format.bytes(version.module_bytes)}.`))));
}
