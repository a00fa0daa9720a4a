// Batch for all instances that match the filters: a form, then the result of a dry run, then the creation.

import * as api from './api.js';
import * as format from './format.js';
import * as router from './router.js';
import { openDialog, userFields, userValues } from './dialog.js';

/** Instructions, and their effect on an instance. */
export const ACTIONS = {
  cancel: 'Cancels and compensates the completed steps.',
  pause: 'Buffers inputs without applying them.',
  resume: 'Applies the buffered inputs and continues.',
  retry: 'Retries the failed action of a stuck instance.',
  skip: 'Skips the failed compensation of a stuck instance.',
  force_complete: 'Ends a stuck instance without further steps or compensations.',
  signal: 'Sends an event.',
  migrate: 'Moves to another definition; requires the right to administer.',
};

/** Opens the form for a selection: the body fields that select instances. */
export function openBatchForm(selection) {
  openDialog({
    title: 'Batch',
    text: `One instruction for all instances of ${selection.saga} that match the filters. The next step shows how many they are; nothing changes before.`,
    fields: [
      { name: 'action', label: 'Instruction', kind: 'select', value: 'cancel', options: Object.keys(ACTIONS) },
      { name: 'signal', label: 'Event type', hint: 'For a signal.' },
      { name: 'data', label: 'Data', kind: 'json', hint: 'For a signal: its payload as JSON.' },
      { name: 'to', label: 'Target definition', hint: 'For a migration: version or hash prefix. Default: the active one.' },
      { name: 'rate', label: 'Instances per second', value: '50' },
      { name: 'canary', label: 'Canary', hint: 'Waits for an approval after this number of instances.' },
      ...userFields(),
    ],
    action: 'Preview',
    async run(values) {
      const body = { ...selection, ...userValues(values), action: action(values), rate: count('Instances per second', values.rate), canary: count('Canary', values.canary) };
      confirm(body, await api.post('/v1/batches', { ...body, dry_run: true }));
    },
  });
}

function action({ action: type, signal, data, to }) {
  if (type === 'signal') return { type, signal, data: data ?? null };
  return type === 'migrate' ? { type, to: to || undefined } : { type };
}

function count(label, text) {
  if (!text) return undefined;
  if (!/^\d+$/.test(text)) throw new Error(`${label}: "${text}" is not a number.`);
  return Number(text);
}

/** Shows the result of the dry run, and creates the batch. */
function confirm(body, preview) {
  // A repeated request does not create another batch.
  const id = api.idempotencyKey();
  const { matched, exact, not_applicable: skipped, items, filter_errors: errors, first_filter_error: firstError } = preview;
  const first = items.slice(0, 5).map((item) => item.correlation).join(', ');
  const texts = [
    `${exact ? '' : 'At least '}${format.plural(matched, 'instance')} of ${body.saga} match${first ? `, first ${first}` : ''}.`,
    ACTIONS[body.action.type],
    skipped ? `${format.number(skipped)} of them would be skipped, because the instruction does not apply.` : null,
    errors ? `The filter fails for ${format.plural(errors, 'instance')}; first error: ${firstError}` : null,
  ];
  openDialog({
    title: `${format.capitalized(format.words(body.action.type))} ${exact ? '' : 'at least '}${format.plural(matched, 'instance')}?`,
    text: texts.filter(Boolean).join(' '),
    action: 'Create batch',
    danger: ['cancel', 'force_complete'].includes(body.action.type),
    async run() {
      const batch = await api.post('/v1/batches', { ...body, id });
      router.go(router.to(['batches', batch.id]));
      return `Batch ${batch.id} was created.`;
    },
  });
}
