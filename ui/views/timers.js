// Timers by due time, with a warning about overdue timers.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { pager, section, table, time, turnPage } from '../components.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 100;
/** Delay after the due time from which a timer is overdue, in milliseconds. */
const OVERDUE_MS = 5000;

export function open(page) {
  page.title('Timers');
  const state = { cursors: [''], nextCursor: null };
  const refresh = page.poll(async (signal) => {
    const { items, nextCursor } = await api.page('/v1/timers', {}, state.cursors.at(-1), PAGE_SIZE, signal);
    state.nextCursor = nextCursor;
    const overdue = items.filter(isOverdue).length;
    page.render(
      state.cursors.length > 1 ? null : h('p', { 'data-key': 'overdue', class: overdue ? 'error-text' : 'muted' }, overdue ? `${format.plural(overdue, 'timer is', 'timers are')} overdue: a shard may be restarting or the disk may be slow.` : 'No overdue timers.'),
      list(items),
      pager(state, changePage),
    );
  }, INTERVAL_MS);

  function changePage(forward) {
    turnPage(state, forward);
    refresh();
  }
}

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
