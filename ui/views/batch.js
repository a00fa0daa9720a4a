// One batch: its progress, its failures, its specification and its actions.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { openDialog, userFields, userValues } from '../dialog.js';
import { button, definitionList, json, section, table, time } from '../components.js';
import { instruction, processed, progress, statusBadge } from './batches.js';

const INTERVAL_MS = 2000;

export function open(page) {
  const [, id] = page.segments;
  const url = api.path('v1', 'batches', id);
  page.title(id);
  const refresh = page.poll(async (signal) => {
    const batch = await api.get(url, {}, signal);
    page.title(id, statusBadge(batch), h('div', { class: 'buttons' }, buttons(batch, { url, refresh: () => refresh() })));
    page.render(
      h('div', { class: 'split', 'data-key': 'split' },
        h('div', {}, progressOf(batch), canary(batch), instances('Failed instances', batch.failures, batch.failed), instances('Skipped instances', batch.skips, batch.skipped)),
        h('div', {}, specification(batch), signalData(batch))),
    );
  }, INTERVAL_MS);
}

function progressOf(batch) {
  const { error, filter_errors: errors, first_filter_error: firstError } = batch;
  const counts = ['matched', 'done', 'skipped', 'failed'].map((name) => [format.capitalized(name), format.number(batch[name])]);
  return section('Progress', {},
    h('div', { role: 'status' }, progress(batch)),
    error ? h('p', { class: 'error-text' }, error) : null,
    definitionList([...counts, ['Filter errors', errors ? `${format.number(errors)}; first: ${firstError}` : null]]));
}

function canary({ status, selection, canary_instances: ids }) {
  if (!ids.length) return null;
  const links = ids.flatMap((id, index) => [index ? ', ' : '', h('a', { href: router.instance(selection.saga, id) }, id)]);
  const waits = status === 'awaiting_approval' ? h('p', {}, 'The canary is done. Check its instances, then approve the rest, or stop the batch.') : null;
  return section('Canary', {}, waits, h('p', {}, links));
}

function instances(title, rows, total) {
  if (!rows.length) return null;
  const columns = [
    { title: 'Instance', head: true, render: ({ instance, correlation }) => h('a', { href: `#${instance.replace('/v1/sagas/', '/instances/')}` }, correlation) },
    { title: 'Reason', render: ({ reason }) => reason },
  ];
  const aside = total > rows.length ? `first ${rows.length} of ${format.number(total)}` : null;
  return section(title, { aside }, table({ caption: title, columns, rows, key: ({ correlation }) => correlation }));
}

function specification({ id, action, selection, rate, canary: size, user, reason, created_at: created, updated_at: updated }) {
  const history = h('a', { href: router.instance('orlog.batch', id) }, 'Show history');
  return section('Specification', { aside: history }, definitionList([
    ['Instruction', instruction(action)],
    ['Saga', h('a', { href: router.to(['definitions', selection.saga]) }, selection.saga)],
    ['Status', selection.status.join(', ')],
    ['ID prefix', selection.prefix],
    ['Updated from', selection.updated_from && time(selection.updated_from, 'absolute')],
    ['Updated until', selection.updated_until && time(selection.updated_until, 'absolute')],
    ['Started from', selection.created_from && time(selection.created_from, 'absolute')],
    ['Started until', selection.created_until && time(selection.created_until, 'absolute')],
    ['Filter', selection.filter && h('code', {}, selection.filter)],
    ['Rate', `${format.number(rate)} per second`],
    ['Canary', size],
    ['User', user],
    ['Reason', reason],
    ['Created', time(created)],
    ['Updated', time(updated)],
  ]));
}

const signalData = ({ action }) => (action.data ? section('Data of the signal', {}, json(action.data, 'Data of the signal')) : null);

function buttons(batch, context) {
  const { id, status } = batch;
  if (!caller.can('control') || ['stopped', 'completed', 'failed', 'stopping'].includes(status)) return null;
  const rest = format.number(Math.max(batch.matched - processed(batch), 0));
  const action = (verb, dialog) => () => change(verb, dialog, context);
  const pause = button('Pause', action('pause', { title: 'Pause?', text: 'No further instance receives the instruction until the batch is resumed.', action: 'Pause', result: `${id} is paused.` }));
  const resume = button('Resume', action('resume', { title: 'Resume?', text: `${rest} instances remain.`, action: 'Resume', result: `${id} is resumed.` }), { variant: 'primary' });
  const approve = button('Approve', action('resume', { title: 'Approve the canary?', text: `${rest} instances remain.`, action: 'Approve', result: `${id} continues.` }), { variant: 'primary' });
  const stop = button('Stop', action('stop', { title: 'Stop?', text: 'No further instance receives the instruction. A stopped batch cannot be resumed.', action: 'Stop batch', danger: true, result: `${id} is stopped.` }), { variant: 'danger' });
  return [{ running: pause, paused: resume, awaiting_approval: approve }[status], stop];
}

function change(verb, { result, ...dialog }, { url, refresh }) {
  openDialog({
    ...dialog,
    fields: userFields(),
    async run(values) {
      await api.post(`${url}/${verb}`, userValues(values));
      refresh();
      return result;
    },
  });
}
