// Dialog that starts an instance of a saga, with a field for each field of the start event that the definition reads.

import * as api from './api.js';
import * as caller from './caller.js';
import * as router from './router.js';
import { openDialog } from './dialog.js';
import { parseInput } from './json.js';

/** Opens the dialog for a start event of a definition. */
export function openStart(saga, { type, example }) {
  const names = Object.keys(example?.data ?? {});
  // A repeated request does not start another instance.
  const key = api.idempotencyKey();
  openDialog({
    title: `Start ${saga}`,
    text: names.length ? `Fields of ${type}. Enter text, a number or JSON; a number in quotes is text.` : `Data of ${type}.`,
    fields: [...fields(names, example), { name: 'correlation', label: 'Correlation ID', hint: 'Empty: from the data, or a new ID.' }],
    action: 'Start',
    async run({ correlation, data, ...values }) {
      const given = names.map((name, index) => [name, values[`field-${index}`]]).filter(([, text]) => text);
      const body = { ...Object.fromEntries(given.map(([name, text]) => [name, parseValue(name, text)])), ...object(data) };
      const query = { event: type, dataversion: example?.dataversion, correlation, on_existing: 'fail' };
      const started = await api.post(api.path('v1', 'sagas', saga), body, { query, headers: { 'idempotency-key': key } });
      if (caller.can('read')) router.go(router.instance(saga, started.correlation));
      return `${saga} ${started.correlation}: started.`;
    },
  });
}

function fields(names, example) {
  const inputs = names.map((name, index) => ({ name: `field-${index}`, label: name, placeholder: placeholder(example.data[name]) }));
  const rest = names.length
    ? { label: 'Other data', hint: 'JSON object with further fields, optional.' }
    : { label: 'Data', value: '{}', hint: 'JSON object.' };
  return [...inputs, { name: 'data', kind: 'json', ...rest }];
}

/** Example of a nested value, whose form is otherwise unknown to the user. */
const placeholder = (value) => (value !== null && typeof value === 'object' ? JSON.stringify(value) : undefined);

/** Returns the value of an input: JSON if it is valid, otherwise text. */
function parseValue(name, text) {
  try {
    return parseInput(text);
  } catch (error) {
    if (/^[{["]|^-?[1-9]\d*$/.test(text)) throw new Error(`${name} is not valid JSON: ${error.message}`);
    return text;
  }
}

function object(data) {
  if (data !== undefined && (data === null || typeof data !== 'object' || Array.isArray(data))) throw new Error('The data is not a JSON object: enter, for example, {"orderId": "o-1"}');
  return data;
}
