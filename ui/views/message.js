// One message: its status and result, its conversation, and the actions of the receiver or the sender.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as router from '../router.js';
import { openDialog, userFields, userValues } from '../dialog.js';
import { button, definitionList, json, section, table, time } from '../components.js';
import { sendDialog, statusBadge } from './messages.js';

const INTERVAL_MS = 2000;
/** Maximum number of displayed messages of a conversation: the last ones. */
const MAX_MESSAGES = 200;

export function open(page) {
  const [, id] = page.segments;
  const url = api.path('v1', 'messages', id);
  const log = { cursor: '', messages: [] };
  page.title(id);
  const refresh = page.poll(async (signal) => {
    const message = await api.get(url, {}, signal);
    const thread = await conversation(message.thread, log, signal);
    const context = { url, refresh: () => refresh() };
    page.title(message.subject || id, statusBadge(message.status), h('div', { class: 'buttons' }, buttons(message, context)));
    page.render(
      section('Conversation', {}, thread.map((entry) => article(entry, id))),
      lines(message.lines),
      h('div', { class: 'split', 'data-key': 'split' },
        section('Result', {}, message.result === null ? h('p', { class: 'empty' }, 'No result.') : json(message.result, 'Result')),
        details(message)),
    );
  }, INTERVAL_MS);
}

/** Returns the last messages of a thread, oldest first. Reads only its last page again. */
async function conversation(thread, log, signal) {
  for (;;) {
    const { items, next_cursor: next } = await api.get('/v1/messages', { thread, cursor: log.cursor }, signal);
    const messages = [...log.messages, ...items].slice(-MAX_MESSAGES);
    if (!next) return messages;
    log.messages = messages;
    log.cursor = next;
  }
}

/** A body is displayed as text, also if it is HTML of another context. */
function article({ id, box, from, user, subject, sent_at: at, body, error }, current) {
  const name = subject || 'Show';
  return h('article', { class: `message ${box}`, 'data-key': id },
    h('header', {}, h('strong', {}, from), user ? ` ${user}` : '', ' ', time(at), ' ', id === current ? null : h('a', { href: router.to(['messages', id]) }, name)),
    error ? h('p', { class: 'error-text' }, error) : h('p', {}, body));
}

function lines(rows) {
  if (!rows.length) return null;
  const columns = [
    { title: 'Time', render: ({ at }) => time(at, 'absolute') },
    { title: 'Line', render: ({ text }) => h('code', {}, text) },
  ];
  return section('Lines', {}, table({ caption: 'Lines of the receiver, oldest first', columns, rows }));
}

function details(message) {
  const saga = message.box === 'in' ? 'orlog.inbox' : 'orlog.message';
  const history = h('a', { href: router.instance(saga, message.id) }, 'Show history');
  const flow = h('a', { href: router.to(['flows', message.id]) }, message.id);
  return section('Details', { aside: caller.can('read') ? history : null }, definitionList([
    ['Type', message.type],
    ['Flow', message.flow && caller.can('read') ? flow : null],
    ['From', message.from],
    ['To', message.to],
    ['User', message.user],
    ['Changed by', message.by],
    ['Failure', message.failure ? h('span', { class: 'error-text' }, `${message.failure.code}: ${message.failure.message}`) : null],
    ['Sent', time(message.sent_at)],
    ['Delivered', time(message.delivered_at)],
    ['Acknowledged', time(message.acknowledged_at)],
    ['Ended', time(message.ended_at)],
  ]));
}

function buttons(message, context) {
  if (!caller.can('work')) return null;
  const { box, type, status, from, to, thread } = message;
  const hasEnded = ['processed', 'error'].includes(status);
  const isMine = box === 'in' && type !== 'job';
  const reply = () => sendDialog({ to: box === 'in' ? from : to, thread, type, sent: context.refresh });
  return [
    type !== 'job' && button('Reply', reply, { variant: 'primary' }),
    isMine && status === 'dispatched' && button('Acknowledge', () => change('acknowledge', 'Acknowledge the message?', 'Acknowledge message', context)),
    isMine && !hasEnded && button('Process', () => process(context)),
    isMine && !hasEnded && button('Reject', () => reject(context), { variant: 'danger' }),
    box === 'out' && !hasEnded && button('Cancel', () => change('cancel', 'Cancel the message?', 'Cancel message', context), { variant: 'danger' }),
  ];
}

function change(verb, title, action, { url, refresh }) {
  openDialog({
    title,
    fields: userFields(),
    action,
    danger: verb === 'cancel',
    async run(values) {
      await api.post(`${url}/${verb}`, userValues(values));
      refresh();
      return verb === 'cancel' ? 'The message is cancelled.' : 'The message is acknowledged.';
    },
  });
}

function process({ url, refresh }) {
  openDialog({
    title: 'End the message with a result?',
    fields: [{ name: 'result', label: 'Result', kind: 'json', hint: 'JSON for the sender; empty: none.' }],
    action: 'Process message',
    async run({ result }) {
      await api.post(`${url}/process`, { result, user: caller.user() || undefined });
      refresh();
      return 'The message is processed.';
    },
  });
}

function reject({ url, refresh }) {
  openDialog({
    title: 'End the message with an error?',
    fields: [{ name: 'reason', label: 'Reason', required: true, hint: 'The sender reads it.' }],
    action: 'Reject message',
    danger: true,
    async run({ reason }) {
      await api.post(`${url}/reject`, { reason, user: caller.user() || undefined });
      refresh();
      return 'The message is rejected.';
    },
  });
}
