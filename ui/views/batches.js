// Batches, newest first: instruction, progress and failures.

import { h } from '../dom.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { ifReadable, section, statusMark, statusWithError, table, time } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 3000;
const PAGE_SIZE = 100;
/** Badge of each batch status. */
const STATUS_BADGES = { awaiting_approval: 'stuck', stopping: 'compensating', stopped: 'cancelled', unreadable: 'failed' };

export function open(page) {
  page.title('Batches');
  openList(page, { path: '/v1/batches', interval: INTERVAL_MS, size: PAGE_SIZE, render: list });
}

function list(items) {
  const columns = [
    { title: 'Batch', head: true, render: ({ id }) => h('a', { href: router.to(['batches', id]) }, id) },
    { title: 'Instruction', render: ifReadable(({ action }) => instruction(action)) },
    { title: 'Saga', render: ifReadable(({ selection }) => h('a', { href: router.to(['definitions', selection.saga]) }, selection.saga)) },
    { title: 'Status', render: (batch) => statusWithError(statusBadge(batch), batch) },
    { title: 'Progress', render: ifReadable(progress) },
    { title: 'Failed', number: true, render: ifReadable(({ failed }) => h('span', { class: failed ? 'error-text' : null }, format.number(failed))) },
    { title: 'User', render: ({ user }) => user ?? h('span', { class: 'muted' }, '–') },
    { title: 'Created', render: ({ created_at: at }) => time(at) },
  ];
  const rows = [...items].sort((a, b) => b.created_at.localeCompare(a.created_at));
  return section('All batches', {}, table({
    caption: 'Batches, newest first', columns, rows, key: ({ id }) => id,
    empty: ['No batches. Select a definition in ', h('a', { href: router.to(['instances']) }, 'Instances'), ', or run ', h('code', {}, 'orlog batch create'), '.'],
  }));
}

export const statusBadge = ({ status }) => statusMark(status, STATUS_BADGES[status] ?? status);

/** Name of the instruction, with its event type or target. */
export function instruction({ type, signal, version }) {
  const detail = signal ?? (version ? `to v${version}` : null);
  return detail ? [format.words(type), ' ', h('span', { class: 'muted' }, detail)] : format.words(type);
}

/** Number of instances that received the instruction. */
export const processed = ({ done, skipped, failed }) => done + skipped + failed;

/** Progress bar with its numbers. */
export function progress(batch) {
  const count = processed(batch);
  if (!batch.counted) return `counting: ${format.number(batch.matched)}`;
  return h('div', { class: 'meter' },
    h('progress', { max: String(Math.max(batch.matched, count, 1)), value: String(count), 'aria-label': 'Progress' }),
    h('span', {}, `${format.number(count)} of ${format.number(batch.matched)}`));
}
