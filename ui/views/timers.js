// Timers by due time, with a warning about overdue timers.

import { h } from '../dom.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { section, table, time } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 100;
/** Delay after the due time from which a timer is overdue, in milliseconds. */
const OVERDUE_MS = 5000;

export function open(page) {
  page.title('Timers');
  openList(page, {
    path: '/v1/timers',
    interval: INTERVAL_MS,
    size: PAGE_SIZE,
    render: (items, isFirst) => [isFirst ? overdueNote(items.filter(isOverdue).length) : null, list(items)],
  });
}

const overdueNote = (overdue) =>
  h('p', { 'data-key': 'overdue', class: overdue ? 'error-text' : 'muted' }, overdue ? `${format.plural(overdue, 'timer is', 'timers are')} overdue: a shard may be restarting or the disk may be slow.` : 'No overdue timers.');

const isOverdue = (timer) => format.now() - Date.parse(timer.due) > OVERDUE_MS;

function list(items) {
  const columns = [
    { title: 'Due', head: true, render: (timer) => h('span', { class: isOverdue(timer) ? 'error-text' : null }, time(timer.due)) },
    { title: 'Due time', render: (timer) => time(timer.due, 'absolute') },
    { title: 'Timer', render: (timer) => timer.name },
    { title: 'Instance', render: (timer) => h('a', { href: router.instance(timer.saga, timer.correlation) }, timer.correlation) },
    { title: 'Definition', render: (timer) => timer.saga },
  ];
  return section('Upcoming timers', {}, table({ caption: 'Timers by due time', columns, rows: items, key: (timer) => `${timer.saga}/${timer.correlation}/${timer.name}/${timer.token}`, empty: 'No armed timers.' }));
}
