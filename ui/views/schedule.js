// One schedule: its next start times, its runs, its specification and its actions.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { openDialog, userFields, userValues } from '../dialog.js';
import { button, definitionList, json, section, table, time } from '../components.js';
import { rule, runBadge, runLink, runs, statusBadge, zone } from './schedules.js';

const INTERVAL_MS = 5000;
/** Effect of a trigger while a run is in progress, for each overlap policy. */
const TRIGGER_EFFECTS = {
  skip: 'it is skipped',
  queue: 'it waits for the end of that run',
  allow: 'it starts beside it',
  cancel: 'that run is cancelled and compensates, then the new one starts',
};

export function open(page) {
  const [, name] = page.segments;
  const url = api.path('v1', 'schedules', name);
  page.title(name);
  const refresh = page.poll(async (signal) => {
    const schedule = await api.get(url, {}, signal);
    page.title(name, statusBadge(schedule), h('div', { class: 'buttons' }, buttons(schedule, { url, refresh: () => refresh() })));
    page.render(
      h('div', { class: 'split', 'data-key': 'split' },
        h('div', {}, nextStarts(schedule), runList(schedule)),
        h('div', {}, specification(schedule), startData(schedule), counts(schedule))),
    );
  }, INTERVAL_MS);
}

function nextStarts({ status, next, spec }) {
  const reasons = { paused: 'Paused: due times are ignored until the schedule is resumed.', ended: 'No further due time.' };
  const name = zone(spec);
  const columns = [
    { title: 'Start', head: true, render: (at) => time(at) },
    { title: 'Your time', render: (at) => time(at, 'absolute') },
    ...(name ? [{ title: name, render: (at) => format.inZone(at, name) }] : []),
  ];
  return section('Next starts', {}, table({ caption: 'Next start times', columns, rows: next, key: (at) => at, empty: reasons[status] ?? 'No further due time.' }));
}

function runList(schedule) {
  const { queued } = schedule;
  const columns = [
    { title: 'Run', head: true, render: (run) => [runLink(run, run.correlation), run.triggered ? h('div', { class: 'muted' }, 'triggered') : null] },
    { title: 'Status', render: (run) => [runBadge(run), run.failure ? h('div', { class: 'error-text' }, run.failure) : null] },
    { title: 'Started', render: (run) => time(run.started_at) },
    { title: 'Duration', render: (run) => (run.ended_at ? format.duration(Date.parse(run.ended_at) - Date.parse(run.started_at)) : null) },
  ];
  return section('Last runs', {},
    queued ? h('p', {}, 'The run of ', time(queued.due, 'absolute'), ' waits for the end of the run in progress.') : null,
    table({ caption: 'Runs, newest first', columns, rows: runs(schedule), key: (run) => run.correlation, empty: 'No runs yet.' }));
}

function specification({ name, spec, file }) {
  const history = h('a', { href: router.instance('orlog.schedule', name) }, 'Show history');
  return section('Specification', { aside: history }, definitionList([
    ['Saga', h('a', { href: router.to(['definitions', spec.saga]) }, spec.saga)],
    ['Start event', spec.event],
    ['Rule', rule(spec)],
    ['Zone', zone(spec)],
    ['Overlap', spec.overlap],
    ['Catch-up window', spec.catch_up ?? '24h'],
    ['Jitter', spec.jitter],
    ['File', file],
  ]));
}

const startData = ({ spec }) => (spec.data ? section('Data of the start event', {}, json(spec.data, 'Data of the start event')) : null);

function counts(schedule) {
  const names = ['started', 'completed', 'failed', 'skipped', 'missed'];
  return section('Counts', {}, definitionList(names.map((name) => [format.capitalized(name), format.number(schedule[name])])));
}

function buttons(schedule, context) {
  if (!caller.can('control')) return null;
  const { name, status, spec, file, running } = schedule;
  const action = (verb, dialog) => () => change(schedule, verb, dialog, context);
  const pause = button('Pause', action('pause', { title: 'Pause?', text: 'Due times are ignored until the schedule is resumed, and are not caught up. Runs in progress continue.', action: 'Pause', result: () => `${name} is paused.` }));
  const resume = button('Resume', action('resume', { title: 'Resume?', text: 'The schedule continues after the current time; the time of the pause is not caught up.', action: 'Resume', result: () => `${name} is resumed.` }), { variant: 'primary' });
  const trigger = button('Trigger', action('trigger', { title: 'Trigger a run now?', text: `A run of ${spec.saga} starts now. If a run is in progress, ${TRIGGER_EFFECTS[spec.overlap]}.`, action: 'Trigger', result: (after) => triggerResult(schedule, after) }));
  const remove = button('Delete', () => deleteSchedule({ name, file, running }), { variant: 'danger' });
  return [status === 'paused' ? resume : null, status === 'ended' ? null : trigger, status === 'active' ? pause : null, remove];
}

function triggerResult(before, after) {
  if (after.skipped > before.skipped) return `${before.name}: skipped, because a run is in progress.`;
  if (after.queued?.triggered) return `${before.name}: the run waits for the end of the run in progress.`;
  return `${before.name}: the run started.`;
}

function change(schedule, verb, { result, ...dialog }, { url, refresh }) {
  // A repeated request has no further effect.
  const id = api.idempotencyKey();
  openDialog({
    ...dialog,
    fields: userFields(),
    async run(values) {
      const after = await api.post(`${url}/${verb}`, { id, ...userValues(values) });
      refresh();
      return result(after);
    },
  });
}

function deleteSchedule({ name, file, running }) {
  const runsContinue = running.length ? ` ${format.plural(running.length, 'run')} in progress will continue.` : '';
  const fromFile = file ? ` Its file ${file} creates the schedule again within 10 seconds: remove the file and deploy, or pause the schedule instead.` : '';
  openDialog({
    title: `Delete ${name}?`,
    text: `No further run starts, and a queued run is dropped.${runsContinue}${fromFile}`,
    action: 'Delete schedule',
    danger: true,
    fields: userFields(),
    async run(values) {
      await api.remove(api.path('v1', 'schedules', name), userValues(values));
      router.go(router.to(['schedules']));
      return `${name} was deleted.`;
    },
  });
}
