// One flow: its graph, its jobs, their lines and its actions.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as router from '../router.js';
import { openDialog, userFields, userValues } from '../dialog.js';
import { button, definitionList, json, section, table, time } from '../components.js';
import { statusBadge } from './flows.js';

const INTERVAL_MS = 1000;
/** Number of displayed lines: the last ones. */
const MAX_LINES = 500;
/** Class of each status of a job in the graph. */
const GRAPH_CLASSES = { started: 'g-running', finished: 'g-completed', error: 'g-failed', waiting_for_prerequisites: 'g-skipped' };
const BOX = { width: 150, height: 44, across: 50, down: 18 };

export function open(page) {
  const [, id] = page.segments;
  const url = api.path('v1', 'flows', id);
  const log = { after: 0, lines: [] };
  page.title(id);
  const refresh = page.poll(async (signal) => {
    const flow = await api.get(url, {}, signal);
    await readLines(url, log, signal);
    page.title(id, statusBadge(flow.status), h('div', { class: 'buttons' }, buttons(flow, { url, refresh: () => refresh() })));
    page.render(
      section('Graph', {}, h('div', { class: 'graph-frame' }, graph(flow.jobs))),
      jobs(flow, { url, refresh: () => refresh() }),
      lines(log.lines),
      h('div', { class: 'split', 'data-key': 'split' },
        section('Results', {}, json(flow.results, 'Results')),
        details(flow)),
    );
  }, INTERVAL_MS);
}

/** Reads the lines after those that are displayed. */
async function readLines(url, log, signal) {
  for (;;) {
    const { items, last } = await api.get(`${url}/lines`, { after: log.after }, signal);
    if (last === log.after) return;
    log.after = last;
    log.lines = [...log.lines, ...items].slice(-MAX_LINES);
  }
}

/** Draws each job in the column after those of its predecessors. */
function graph(jobs) {
  const depths = new Map();
  const before = new Map(jobs.map((job) => [job.id, [...job.prerequisites, ...job.dependencies]]));
  const depth = (id) => {
    if (!depths.has(id)) depths.set(id, Math.max(-1, ...before.get(id).map(depth)) + 1);
    return depths.get(id);
  };
  const rows = [];
  const places = new Map();
  for (const { id } of jobs) {
    const column = depth(id);
    const row = rows[column] ?? 0;
    rows[column] = row + 1;
    places.set(id, { x: column * (BOX.width + BOX.across), y: row * (BOX.height + BOX.down) });
  }
  const width = rows.length * (BOX.width + BOX.across) - BOX.across;
  const height = Math.max(...rows) * (BOX.height + BOX.down) - BOX.down;
  const middle = (id) => places.get(id).y + BOX.height / 2;
  const edges = jobs.flatMap(({ id }) => [...new Set(before.get(id))].map((from) => {
    const [start, end] = [places.get(from).x + BOX.width, places.get(id).x];
    const bend = (start + end) / 2;
    return h('svg:path', { class: 'g-a', d: `M${start},${middle(from)} C${bend},${middle(from)} ${bend},${middle(id)} ${end},${middle(id)}` });
  }));
  const boxes = jobs.map(({ id, type, status }) => {
    const { x, y } = places.get(id);
    return h('svg:g', { class: GRAPH_CLASSES[status], transform: `translate(${x},${y})` },
      h('svg:title', {}, `${id}: ${status}`),
      h('svg:rect', { class: 'g-b', width: BOX.width, height: BOX.height, rx: 6 }),
      h('svg:text', { class: 'g-t', x: BOX.width / 2, y: 19, 'text-anchor': 'middle' }, shortened(id)),
      h('svg:text', { class: 'g-s', x: BOX.width / 2, y: 35, 'text-anchor': 'middle' }, shortened(type)));
  });
  const drawing = h('svg:svg', { class: 'graph', role: 'img', 'aria-label': 'Graph of the jobs', viewBox: `-2 -2 ${width + 4} ${height + 4}` }, edges, boxes);
  // A small graph is not enlarged.
  drawing.style.maxWidth = `${width + 4}px`;
  return drawing;
}

const shortened = (text) => (text.length > 20 ? `${text.slice(0, 19)}…` : text);

function jobs(flow, context) {
  const columns = [
    { title: 'Job', head: true, render: ({ id }) => id },
    { title: 'Type', render: ({ type }) => type },
    { title: 'Status', render: ({ status }) => statusBadge(status) },
    { title: 'Runner', render: ({ runner, waits_for: reason }) => runner ?? h('span', { class: 'muted' }, reason ?? '–') },
    { title: 'Attempts', number: true, render: ({ attempts }) => attempts },
    { title: 'Lines', number: true, render: ({ lines }) => lines },
    { title: 'After', render: ({ prerequisites, dependencies }) => [...prerequisites, ...dependencies].join(', ') },
    { title: 'Deadline', render: ({ deadline }) => (deadline ? time(deadline) : null) },
    { title: 'Failure', render: ({ failure }) => (failure ? h('span', { class: 'error-text' }, `${failure.code}: ${failure.message}`) : null) },
    { title: 'Action', render: (job) => rerun(job, context) },
  ];
  return section('Jobs', {}, table({ caption: 'Jobs in the order of the flow', columns, rows: flow.jobs, key: ({ id }) => id }));
}

function rerun({ id, status }, { url, refresh }) {
  if (!caller.can('control') || !['finished', 'error'].includes(status)) return null;
  const run = () => openDialog({
    title: `Rerun from ${id}?`,
    text: 'Executes the job and all jobs that follow it again. Their results are deleted.',
    fields: userFields(),
    action: 'Rerun',
    async run(values) {
      await api.post(`${url}/jobs/${encodeURIComponent(id)}/rerun`, userValues(values));
      refresh();
      return `${id} is executed again.`;
    },
  });
  return button('Rerun', run, { label: `Rerun from ${id}` });
}

function lines(rows) {
  const columns = [
    { title: 'Time', render: ({ at }) => time(at, 'absolute') },
    { title: 'Job', render: ({ job }) => job },
    { title: 'Line', render: ({ text }) => h('code', {}, text) },
  ];
  return section('Lines', { aside: rows.length === MAX_LINES ? `last ${MAX_LINES}` : null }, table({
    caption: 'Lines of the jobs, oldest first', columns, rows, key: ({ number }) => String(number), empty: 'The jobs have written no lines.',
  }));
}

function details({ id, name, labels, user, tenant, created_at: created, updated_at: updated }) {
  const history = h('a', { href: router.instance('orlog.flow', id) }, 'Show history');
  return section('Details', { aside: history }, definitionList([
    ['Name', name],
    ['Labels', Object.entries(labels).map(([label, value]) => `${label}=${value}`).join(', ')],
    ['User', user],
    ['Tenant', tenant || 'default tenant'],
    ['Submitted', time(created)],
    ['Updated', time(updated)],
  ]));
}

function buttons(flow, context) {
  if (!caller.can('control')) return null;
  const action = (verb, dialog) => () => change(verb, dialog, context);
  const cancel = button('Cancel', action('cancel', { title: 'Cancel the flow?', text: 'Jobs that wait or run are withdrawn. Finished jobs keep their results.', action: 'Cancel flow', danger: true, result: `${flow.id} is cancelled.` }), { variant: 'danger' });
  const retry = button('Retry', action('retry', { title: 'Retry the failed jobs?', text: 'Executes all jobs with the status error again.', action: 'Retry jobs', result: `${flow.id} continues.` }), { variant: 'primary' });
  const hasFailed = flow.jobs.some(({ status }) => status === 'error');
  const hasEnded = ['finished', 'error'].includes(flow.status);
  return [hasFailed && retry, !hasEnded && cancel];
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
