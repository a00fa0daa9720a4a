// Messages of the context: its inbox and its outbox, and the form that sends a message.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as router from '../router.js';
import { openDialog } from '../dialog.js';
import { button, field, ifReadable, section, statusMark, statusWithError, table, time } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 3000;
const PAGE_SIZE = 100;
/** Badge of each status of a message. */
const STATUS_BADGES = { dispatched: 'paused', acknowledged: 'running', processed: 'completed', error: 'failed', unreadable: 'failed' };
const BOXES = [['in', 'Inbox'], ['out', 'Outbox']];
const STATUSES = [['', 'All statuses'], ['dispatched', 'dispatched'], ['acknowledged', 'acknowledged'], ['processed', 'processed'], ['error', 'error']];

export function open(page) {
  const filters = Object.fromEntries(page.query);
  page.title('Messages', caller.can('work') ? h('div', { class: 'buttons' }, button('Send a message', () => sendDialog({}), { variant: 'primary' })) : null);
  const query = () => ({ box: filters.box ?? 'in', status: filters.status });
  const messages = openList(page, {
    path: '/v1/messages',
    interval: INTERVAL_MS,
    size: PAGE_SIZE,
    query,
    render: (items) => [filterForm(filters, changeFilter), list(items, query().box)],
  });

  function changeFilter(name, value) {
    if (value) filters[name] = value;
    else delete filters[name];
    router.go(router.to(['messages'], filters), true);
    messages.restart();
  }
}

function filterForm(filters, onChange) {
  const select = (name, pairs) => h('select', { value: filters[name] ?? pairs[0][0], on: { change: (event) => onChange(name, event.target.value) } }, pairs.map(([value, title]) => h('option', { value }, title)));
  return h('form', { class: 'filters', 'aria-label': 'Filters', 'data-key': 'filters', on: { submit: (event) => event.preventDefault() } },
    field('Box', select('box', BOXES)),
    field('Status', select('status', STATUSES)));
}

function list(items, box) {
  const other = box === 'in' ? 'From' : 'To';
  const columns = [
    { title: 'Message', head: true, render: ({ id, subject }) => h('a', { href: router.to(['messages', id]) }, subject || id) },
    { title: 'Type', render: ifReadable(({ type }) => type) },
    { title: other, render: ifReadable(({ from, to }) => (box === 'in' ? from : to)) },
    { title: 'Status', render: (message) => statusWithError(statusBadge(message.status), message) },
    { title: 'User', render: ({ user }) => user ?? h('span', { class: 'muted' }, '–') },
    { title: 'Sent', render: ({ sent_at: at }) => time(at) },
  ];
  const rows = [...items].sort((a, b) => b.sent_at.localeCompare(a.sent_at));
  const title = box === 'in' ? 'Inbox' : 'Outbox';
  return section(title, {}, table({ caption: `${title}, newest first`, columns, rows, key: ({ id }) => id, empty: 'No messages.' }));
}

export const statusBadge = (status) => statusMark(status, STATUS_BADGES[status] ?? 'cancelled');

/** Opens the form of a message. With a thread, it is a reply, and `sent` is called afterwards. */
export function sendDialog({ to, thread, type, sent }) {
  const id = api.idempotencyKey();
  openDialog({
    title: thread ? `Reply to ${to}` : 'Send a message',
    fields: [
      ...(thread ? [] : [
        { name: 'to', label: 'To', required: true, placeholder: 'context@node', hint: 'A context of this node needs no @.' },
        { name: 'type', label: 'Type', kind: 'select', value: 'chat', options: ['chat', 'mail', 'job'] },
        { name: 'subject', label: 'Subject' },
      ]),
      { name: 'format', label: 'Format', kind: 'select', value: 'text', options: ['text', 'md', 'html'] },
      { name: 'body', label: 'Text', kind: 'text', required: true, hint: thread ? null : 'A job: its flow in YAML or JSON.' },
    ],
    action: 'Send',
    async run({ body, subject, ...values }) {
      const receiver = thread ? { to, type, thread } : { to: values.to, type: values.type };
      const content = receiver.type === 'job' ? { flow: body } : { body, format: values.format };
      const message = await api.post('/v1/messages', {
        ...receiver,
        ...content,
        subject: subject || undefined,
        user: caller.user() || undefined,
      }, { headers: { 'idempotency-key': id } });
      if (sent) sent();
      else router.go(router.to(['messages', message.id]));
      return `The message to ${message.to} is stored.`;
    },
  });
}
