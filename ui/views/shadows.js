// Shadows: candidates of definitions that are compared with live instances.

import { h } from '../dom.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { ifReadable, section, statusMark, statusWithError, table, time } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 3000;
const PAGE_SIZE = 100;
/** Badge of each status of a shadow. */
const STATUS_BADGES = { ending: 'compensating', stopped: 'cancelled', promoted: 'completed', superseded: 'cancelled', unreadable: 'failed' };

export function open(page) {
  page.title('Shadows');
  openList(page, { path: '/v1/shadows', interval: INTERVAL_MS, size: PAGE_SIZE, render: list });
}

function list(items) {
  const columns = [
    { title: 'Saga', head: true, render: ({ saga }) => h('a', { href: router.to(['shadows', saga]) }, saga) },
    { title: 'Version', render: ifReadable(versions) },
    { title: 'Status', render: (shadow) => statusWithError(statusBadge(shadow), shadow) },
    { title: 'Sample', render: ({ sample }) => sample },
    { title: 'Compared', number: true, render: ifReadable(({ compared }) => format.number(compared)) },
    { title: 'Different', number: true, render: ifReadable(({ different }) => h('span', { class: different ? 'error-text' : null }, format.number(different))) },
    { title: 'Skipped', number: true, render: ifReadable((shadow) => format.number(skipped(shadow))) },
    { title: 'Until', render: ifReadable(({ until }) => time(until)) },
  ];
  return section('All shadows', {}, table({
    caption: 'Shadows, by saga', columns, rows: items, key: ({ saga }) => saga,
    empty: ['No shadows. To compare a new version of a definition with live instances, run ', h('code', {}, 'orlog shadow start'), '.'],
  }));
}

export const statusBadge = ({ status }) => statusMark(status, STATUS_BADGES[status] ?? status);

/** Versions of the live definition and of the candidate. */
export const versions = ({ live, candidate }) => `${live.version} → ${candidate.version}`;

/** Number of instances that were not compared. */
export const skipped = (shadow) => Object.values(shadow.skipped).reduce((sum, count) => sum + count, 0);
