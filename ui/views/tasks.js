// Task list with filters, paging and the actions of each task.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import * as settings from '../settings.js';
import { button, field, section, statusMark, table, time } from '../components.js';
import * as caller from '../caller.js';
import { instanceLink, taskButtons } from './task.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 50;
const STATUSES = [['', 'open or claimed'], ['completed', 'completed'], ['closed', 'closed'], ['open,claimed,completed,closed', 'all']];

export function open(page) {
  page.title('Tasks');
  const filters = Object.fromEntries(page.query);
  const state = { cursors: [''], items: null };
  const refresh = page.poll(async (signal) => {
    const { assignee, status } = filters;
    const query = { status, role: assignee === 'role' ? settings.roleList()[0] : filters.role, assignee: assignee === 'me' ? caller.user() : undefined };
    Object.assign(state, await api.page('/v1/tasks', query, state.cursors.at(-1), PAGE_SIZE, signal));
    render();
  }, INTERVAL_MS);
  const changeFilter = (name, value) => {
    if (value) filters[name] = value;
    else delete filters[name];
    router.go(router.to(['tasks'], filters), true);
    state.cursors = [''];
    refresh();
  };
  const changePage = (forward) => {
    if (forward) state.cursors.push(state.nextCursor);
    else state.cursors.pop();
    refresh();
  };
  const render = () => page.render(filterForm(filters, changeFilter), list(state.items, filters, refresh), pager(state, changePage));
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
  return section('Inbox', {}, table({ caption: 'Tasks', columns, rows: items ?? [], key: (task) => task.id, empty }));
}

function pager(state, onChange) {
  if (state.cursors.length < 2 && !state.nextCursor) return null;
  return h('nav', { class: 'pager', 'aria-label': 'Pages' },
    button('Previous page', () => onChange(false), { disabled: state.cursors.length < 2 }),
    h('span', {}, `Page ${state.cursors.length}`),
    button('Next page', () => onChange(true), { disabled: !state.nextCursor }));
}
