// Flows, newest first: status and progress of their jobs.

import { h } from '../dom.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { ifReadable, section, statusMark, statusWithError, table, time } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 3000;
const PAGE_SIZE = 100;
/** Badge of each status of a flow or a job. */
const STATUS_BADGES = { started: 'running', finished: 'completed', error: 'failed', dispatched: 'paused', unreadable: 'failed' };

export function open(page) {
  page.title('Flows');
  openList(page, { path: '/v1/flows', interval: INTERVAL_MS, size: PAGE_SIZE, render: list });
}

function list(items) {
  const columns = [
    { title: 'Flow', head: true, render: ({ id }) => h('a', { href: router.to(['flows', id]) }, id) },
    { title: 'Name', render: ({ name }) => name ?? h('span', { class: 'muted' }, '–') },
    { title: 'Status', render: (flow) => statusWithError(statusBadge(flow.status), flow) },
    { title: 'Finished jobs', number: true, render: ifReadable(finished) },
    { title: 'User', render: ({ user }) => user ?? h('span', { class: 'muted' }, '–') },
    { title: 'Submitted', render: ({ created_at: at }) => time(at) },
  ];
  const rows = [...items].sort((a, b) => b.created_at.localeCompare(a.created_at));
  return section('All flows', {}, table({
    caption: 'Flows, newest first', columns, rows, key: ({ id }) => id,
    empty: ['No flows. Run ', h('code', {}, 'orlog flow submit'), '.'],
  }));
}

export const statusBadge = (status) => statusMark(status, STATUS_BADGES[status] ?? 'cancelled');

function finished({ jobs_by_status: jobs }) {
  const total = Object.values(jobs).reduce((sum, count) => sum + count, 0);
  return `${format.number(jobs.finished ?? 0)} of ${format.number(total)}`;
}
