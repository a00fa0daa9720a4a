// Task list with filters, paging and the actions of each task.

import { h } from '../dom.js';
import * as format from '../format.js';
import * as router from '../router.js';
import * as settings from '../settings.js';
import { field, section, statusMark, table, time } from '../components.js';
import * as caller from '../caller.js';
import { openList } from '../list.js';
import { instanceLink, taskButtons } from './task.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 50;
const STATUSES = [['', 'open or claimed'], ['completed', 'completed'], ['closed', 'closed'], ['open,claimed,completed,closed', 'all']];

export function open(page) {
  page.title('Tasks');
  const filters = Object.fromEntries(page.query);
  const tasks = openList(page, {
    path: '/v1/tasks',
    interval: INTERVAL_MS,
    size: PAGE_SIZE,
    query: () => ({
      status: filters.status,
      role: filters.assignee === 'role' ? settings.roleList()[0] : filters.role,
      assignee: filters.assignee === 'me' ? caller.user() : undefined,
    }),
    render: (items) => [filterForm(filters, changeFilter), list(items, filters, () => tasks.refresh())],
  });

  function changeFilter(name, value) {
    if (value) filters[name] = value;
    else delete filters[name];
    router.go(router.to(['tasks'], filters), true);
    tasks.restart();
  }
}

function filterForm(filters, onChange) {
  const select = (name, pairs) => h('select', { value: filters[name] ?? '', on: { change: (event) => onChange(name, event.target.value) } }, pairs.map(([value, title]) => h('option', { value }, title)));
  const [role] = settings.roleList();
  const user = caller.user();
  const assignees = [['', 'All'], ...(user ? [['me', user]] : []), ...(role ? [['role', `Role ${role}`]] : [])];
  return h('form', { class: 'filters', 'aria-label': 'Filters', 'data-key': 'filters', on: { submit: (event) => event.preventDefault() } },
    field('Assignee', select('assignee', assignees), user ? null : 'Set your user name in the header to filter by your tasks.'),
    field('Status', select('status', STATUSES)));
}

function list(items, filters, refresh) {
  const columns = [
    { title: 'Task', head: true, render: (task) => [h('a', { href: router.to(['tasks', task.id]) }, task.title), h('div', { class: 'muted' }, task.roles.length ? `for ${task.roles.join(', ')}` : 'for everyone')] },
    { title: 'Instance', render: (task) => instanceLink(task) },
    { title: 'Status', render: (task) => statusMark(task.status, { open: 'plain', claimed: 'running', completed: 'completed', closed: 'cancelled' }[task.status]) },
    { title: 'Assignee', render: (task) => task.claimed_by ?? task.assignee ?? h('span', { class: 'muted' }, 'Unassigned') },
    { title: 'Due', render: (task) => h('span', { class: task.due && Date.parse(task.due) < format.now() && ['open', 'claimed'].includes(task.status) ? 'error-text' : null }, time(task.due)) },
    { title: 'Opened', render: (task) => time(task.opened_at) },
    { title: 'Actions', class: 'row-actions', render: (task) => h('div', { class: 'buttons' }, taskButtons(task, refresh).slice(0, 2)) },
  ];
  const empty = filters.status || filters.assignee || filters.role ? 'No matching tasks. Change the filters.' : 'No open tasks.';
  return section('Inbox', {}, table({ caption: 'Tasks', columns, rows: items, key: (task) => task.id, empty }));
}
