// Schedules by name: rule, next start, last run, missed due times.

import { h } from '../dom.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { badge, ifReadable, section, statusMark, statusWithError, table, time } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 50;
/** Badge of each schedule status. */
const STATUS_BADGES = { active: 'completed', paused: 'paused', ended: 'cancelled', unreadable: 'failed' };

export function open(page) {
  page.title('Schedules');
  openList(page, { path: '/v1/schedules', interval: INTERVAL_MS, size: PAGE_SIZE, render: list });
}

function list(items) {
  const columns = [
    { title: 'Schedule', head: true, render: (schedule) => h('a', { href: router.to(['schedules', schedule.name]) }, schedule.name) },
    { title: 'Saga', render: ifReadable(({ spec }) => h('a', { href: router.to(['definitions', spec.saga]) }, spec.saga)) },
    { title: 'Rule', render: ifReadable(({ spec }) => rule(spec)) },
    { title: 'Zone', render: ifReadable(({ spec }) => zone(spec) ?? h('span', { class: 'muted' }, '–')) },
    { title: 'Status', render: (schedule) => statusWithError(statusBadge(schedule), schedule) },
    { title: 'Next start', render: ({ next }) => time(next[0]) },
    { title: 'Last run', render: lastRun },
    { title: 'Missed', number: true, render: ifReadable(({ missed }) => h('span', { class: missed ? 'error-text' : null }, format.number(missed))) },
  ];
  return section('All schedules', {}, table({
    caption: 'Schedules by name', columns, rows: items, key: (schedule) => schedule.name,
    empty: ['No schedules. Deploy a file ', h('code', {}, '*.schedule.yaml'), ' or run ', h('code', {}, 'orlog schedule create'), '.'],
  }));
}

export const statusBadge = ({ status }) => statusMark(status, STATUS_BADGES[status]);

/** Rule of the due times: cron expression, interval or date. */
export function rule({ cron, every, anchor, at }) {
  if (cron) return h('code', {}, cron);
  if (every) return anchor ? `every ${every} from ${anchor}` : `every ${every}`;
  return `at ${at}`;
}

/** Time zone of the rule; intervals have none. */
export const zone = ({ every, zone: name }) => (every ? null : (name ?? 'UTC'));

/** Runs in progress and ended runs, newest first. */
export const runs = ({ running, recent }) => [...running, ...recent].sort((a, b) => b.started_at.localeCompare(a.started_at));

/** Link to the instance of a run. */
export const runLink = (run, text) => h('a', { href: router.instance(run.saga, run.correlation) }, text);

/** Badge of a run. */
export function runBadge(run) {
  if (!run.ended_at) return run.cancelled ? statusMark('cancelling', 'compensating') : badge('running');
  if (run.cancelled) return badge('cancelled');
  return badge(run.failure ? 'failed' : 'completed');
}

function lastRun(schedule) {
  const [run] = runs(schedule);
  return run ? [runLink(run, time(run.started_at)), ' ', runBadge(run)] : h('span', { class: 'muted' }, '–');
}
