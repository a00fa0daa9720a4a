// Asks before something is done: what, why, by whom; and stays open with the reason when it did not work.

import { h } from './dom.js';
import { button, field, say } from './components.js';
import { Problem } from './api.js';
import * as settings from './settings.js';

/** Fields are `{ name, label, kind, value, hint, options, required }`; `run(values)` does it and returns what to say. */
export function ask({ title, text, fields = [], action, danger, run }) {
  const opener = document.activeElement;
  const controls = fields.map((wanted) => [wanted, control(wanted)]);
  const trouble = h('div', { class: 'trouble', role: 'alert' });
  const submit = h('button', { type: 'submit', class: danger ? 'danger' : 'main' }, action);
  const form = h(
    'form',
    { on: { submit: (event) => void perform(event) } },
    h('h2', { id: 'ask-title' }, title),
    text ? h('p', { id: 'ask-text' }, text) : null,
    controls.map(([wanted, input]) => wrapped(wanted, input)),
    trouble,
    h('div', { class: 'actions' }, button('Close', () => dialog.close()), submit),
  );
  const dialog = h('dialog', { 'aria-labelledby': 'ask-title', 'aria-describedby': text ? 'ask-text' : null }, form);
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
    else document.getElementById('main').focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  (controls[0]?.[1] ?? submit).focus();

  async function perform(event) {
    event.preventDefault();
    trouble.replaceChildren();
    submit.disabled = true;
    try {
      const said = await run(read(controls));
      dialog.close();
      if (said) say(said);
    } catch (error) {
      trouble.replaceChildren(...explained(error));
    } finally {
      submit.disabled = false;
    }
  }
}

/** What went wrong, with the page about it. */
export function explained(error) {
  if (!(error instanceof Problem)) return [h('p', {}, String(error.message ?? error))];
  const head = error.title ? h('strong', {}, `${error.title}. `) : null;
  const page = error.code ? h('a', { href: `/errors/${error.code}`, target: '_blank', rel: 'noreferrer' }, `What to do (${error.code})`) : null;
  const places = error.places.filter((place) => place.detail !== error.message);
  return [
    h('p', {}, head, error.message, ' ', page),
    places.length ? h('ul', {}, places.map((place) => h('li', {}, h('code', {}, place.pointer), ' ', place.detail))) : null,
  ].filter(Boolean);
}

function control({ name, kind, value, options, required }) {
  const common = { name, required };
  if (kind === 'select') return h('select', { ...common, value }, options.map((option) => h('option', { value: option }, option)));
  if (kind === 'json') return h('textarea', { ...common, rows: '5', spellcheck: 'false', class: 'code', value: value ?? '' });
  if (kind === 'check') return h('input', { ...common, type: 'checkbox', checked: value });
  const list = options?.length ? h('datalist', { id: `list-${name}` }, options.map((option) => h('option', { value: option }))) : null;
  const input = h('input', { ...common, type: 'text', value: value ?? '', list: list ? `list-${name}` : null, autocomplete: 'off' });
  input.listed = list;
  return input;
}

function wrapped({ label, kind, hint }, input) {
  if (kind === 'check') return h('label', { class: 'check' }, input, h('span', {}, label));
  return [field(label, input, hint), input.listed];
}

function read(controls) {
  const values = {};
  for (const [{ name, kind, label }, input] of controls) {
    if (kind === 'check') values[name] = input.checked;
    else if (kind === 'json') values[name] = parsed(label, input.value);
    else values[name] = input.value.trim();
  }
  return values;
}

function parsed(label, text) {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${label} is not JSON: ${error.message}`);
  }
}

/** Who does it and why: the fields that every instruction has. */
export function circumstances() {
  return [
    { name: 'reason', label: 'Why', hint: 'Stands in the history.' },
    { name: 'by', label: 'Your name', value: settings.person.get(), hint: 'Stands in the history.' },
  ];
}

/** What the API is told of them. */
export function given({ by, reason }) {
  if (by) settings.person.set(by);
  return { by: by || undefined, reason: reason || undefined };
}
