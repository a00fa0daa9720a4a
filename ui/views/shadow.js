// One shadow: its counts, the kinds of differences with the values of their first instances, and its actions.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { openDialog, userFields, userValues } from '../dialog.js';
import { button, definitionList, section, table, time } from '../components.js';
import { statusBadge, versions } from './shadows.js';

const INTERVAL_MS = 2000;

export function open(page) {
  const [, saga] = page.segments;
  const url = api.path('v1', 'shadows', saga);
  page.title(saga);
  const refresh = page.poll(async (signal) => {
    const shadow = await api.get(url, {}, signal);
    page.title(saga, statusBadge(shadow), h('div', { class: 'buttons' }, buttons(shadow, { url, refresh: () => refresh() })));
    page.render(
      h('div', { class: 'split', 'data-key': 'split' },
        h('div', {}, differences(shadow), skips(shadow)),
        h('div', {}, progress(shadow), specification(shadow))),
    );
  }, INTERVAL_MS);
}

function differences({ differences: kinds, other_differences: others, compared }) {
  const columns = [
    { title: 'Difference', head: true, render: ({ kind }) => kind },
    { title: 'Instances', number: true, render: ({ count }) => format.number(count) },
    { title: 'Live', render: ({ live }) => value(live) },
    { title: 'Candidate', render: ({ candidate }) => value(candidate) },
    { title: 'First instances', render: ({ instances }) => links(instances) },
  ];
  const empty = compared ? 'No differences.' : 'No instance was compared yet.';
  const aside = others ? `${format.plural(others, 'difference')} of further kinds` : null;
  return section('Differences', { aside }, table({ caption: 'Kinds of differences', columns, rows: kinds, key: ({ kind }) => kind, empty }));
}

const value = (found) => (found === undefined ? h('span', { class: 'muted' }, '–') : h('code', {}, JSON.stringify(found)));

const links = (paths) => paths.flatMap((path, index) => [
  index ? ', ' : '',
  h('a', { href: `#${path.replace('/v1/sagas/', '/instances/')}` }, decodeURIComponent(path.split('/').at(-1))),
]);

function skips({ skipped }) {
  const rows = Object.entries(skipped);
  if (!rows.length) return null;
  const columns = [
    { title: 'Reason', head: true, render: ([reason]) => reason },
    { title: 'Instances', number: true, render: ([, count]) => format.number(count) },
  ];
  return section('Not compared', {}, table({ caption: 'Instances that were not compared', columns, rows, key: ([reason]) => reason }));
}

function progress({ error, compared, equal, different, unfinished }) {
  return section('Progress', {},
    error ? h('p', { class: 'error-text' }, error) : null,
    definitionList([
      ['Compared', format.number(compared)],
      ['Equal', format.number(equal)],
      ['Different', format.number(different)],
      ['Not ended', unfinished ? format.number(unfinished) : null],
    ]));
}

function specification(shadow) {
  const { saga, file, sample, from, until, max_instances: most, user, reason, updated_at: updated } = shadow;
  const history = h('a', { href: router.instance('orlog.shadow', saga) }, 'Show history');
  return section('Specification', { aside: history }, definitionList([
    ['Saga', h('a', { href: router.to(['definitions', saga]) }, saga)],
    ['Version', versions(shadow)],
    ['File', file],
    ['Sample', sample],
    ['Started', time(from)],
    ['Until', time(until)],
    ['Limit', format.plural(most, 'instance')],
    ['User', user],
    ['Reason', reason],
    ['Updated', time(updated)],
  ]));
}

function buttons(shadow, context) {
  const { saga, status, compared, different } = shadow;
  if (!caller.can('admin')) return null;
  const isRunning = status === 'running';
  const stop = isRunning && button('Stop', () => change('stop', { title: 'Stop?', text: 'New instances are no longer compared. The report remains.', action: 'Stop shadow', danger: true, result: () => `${saga} is stopped.` }, context), { variant: 'danger' });
  const finding = compared ? `${format.number(different)} of ${format.number(compared)} compared instances differ.` : 'No instance was compared.';
  const accepts = !compared || different > 0;
  const promotes = ['running', 'ending', 'completed', 'stopped'].includes(status);
  const promote = promotes && button('Promote', () => change('promote', {
    title: 'Deploy the candidate?', text: `${finding} Running instances keep their definition.`, action: accepts ? 'Deploy anyway' : 'Deploy', danger: accepts,
    body: { accept_differences: accepts }, result: ({ number }) => `Deployment ${number} is active.`,
  }, context), { variant: 'primary' });
  return [promote, stop];
}

function change(verb, { result, body = {}, ...dialog }, { url, refresh }) {
  openDialog({
    ...dialog,
    fields: userFields(),
    async run(values) {
      const done = await api.post(`${url}/${verb}`, { ...userValues(values), ...body });
      refresh();
      return result(done);
    },
  });
}
