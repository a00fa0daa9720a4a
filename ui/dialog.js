// Dialogs that confirm an action. A failed action keeps the dialog open and displays the error.

import { h } from './dom.js';
import { announce, button, field } from './components.js';
import { Problem } from './api.js';
import { parseInput } from './json.js';
import * as caller from './caller.js';
import * as settings from './settings.js';

/**
 * Opens a dialog. Fields are `{ name, label, kind, value, hint, options, placeholder, required }`. `run(values)` executes the action and
 * returns the message to announce.
 */
export function openDialog({ title, text, fields = [], action, danger, run }) {
  const opener = document.activeElement;
  const controls = fields.map((spec) => [spec, control(spec)]);
  const errorBox = h('div', { class: 'error-box', role: 'alert' });
  const submit = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, action);
  const form = h(
    'form',
    { on: { submit: (event) => void execute(event) } },
    h('h2', { id: 'dialog-title' }, title),
    text ? h('p', { id: 'dialog-text' }, text) : null,
    controls.map(([spec, input]) => labelled(spec, input)),
    errorBox,
    h('div', { class: 'actions' }, button('Close', () => dialog.close()), submit),
  );
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', 'aria-describedby': text ? 'dialog-text' : null }, form);
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
    else document.getElementById('main').focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  (controls[0]?.[1] ?? submit).focus();

  async function execute(event) {
    event.preventDefault();
    errorBox.replaceChildren();
    submit.disabled = true;
    try {
      const message = await run(values(controls));
      if (dialog.isConnected) dialog.close();
      if (message) announce(message);
    } catch (error) {
      if (dialog.isConnected) errorBox.replaceChildren(...errorContent(error));
      else announce(`${title} ${error.message ?? error}`);
    } finally {
      submit.disabled = false;
    }
  }
}

/** Removes the open dialog, because its view is no longer displayed. An action in progress announces its result. */
export function dismissDialog() {
  document.querySelector('dialog')?.remove();
}

/** Returns the error message with a link to the page of its code. */
export function errorContent(error) {
  if (!(error instanceof Problem)) return [h('p', {}, String(error.message ?? error))];
  const head = error.title ? h('strong', {}, `${error.title}. `) : null;
  const help = error.code ? h('a', { href: `/errors/${error.code}`, target: '_blank', rel: 'noreferrer' }, `Help (${error.code})`) : null;
  const details = error.errors.filter((entry) => entry.detail !== error.message);
  return [
    h('p', {}, head, error.message, ' ', help),
    details.length ? h('ul', {}, details.map((entry) => h('li', {}, h('code', {}, entry.pointer), ' ', entry.detail))) : null,
  ].filter(Boolean);
}

function control({ name, kind, value, options, placeholder, required }) {
  const common = { name, required, placeholder };
  if (kind === 'select') return h('select', { ...common, value }, options.map((option) => h('option', { value: option }, option)));
  if (kind === 'json') return h('textarea', { ...common, rows: '5', spellcheck: 'false', class: 'code', value: value ?? '' });
  if (kind === 'text') return h('textarea', { ...common, rows: '6', value: value ?? '' });
  if (kind === 'check') return h('input', { ...common, type: 'checkbox', checked: value });
  const list = options?.length ? h('datalist', { id: `list-${name}` }, options.map((option) => h('option', { value: option }))) : null;
  const input = h('input', { ...common, type: 'text', value: value ?? '', list: list ? `list-${name}` : null, autocomplete: 'off' });
  input.datalist = list;
  return input;
}

function labelled({ label, kind, hint }, input) {
  if (kind === 'check') return h('label', { class: 'check' }, input, h('span', {}, label));
  return [field(label, input, hint, 'dialog'), input.datalist];
}

function values(controls) {
  const result = {};
  for (const [{ name, kind, label }, input] of controls) {
    if (kind === 'check') result[name] = input.checked;
    else if (kind === 'json') result[name] = parseJson(label, input.value);
    else result[name] = input.value.trim();
  }
  return result;
}

function parseJson(label, text) {
  if (!text.trim()) return undefined;
  try {
    return parseInput(text);
  } catch (error) {
    throw new Error(`${label} is not valid JSON: ${error.message}`);
  }
}

/** Fields of every control request: reason and user. */
export function userFields() {
  return [
    { name: 'reason', label: 'Reason', hint: 'Recorded in the history.' },
    { name: 'user', label: 'User name', value: caller.user(), hint: 'Recorded in the history.' },
  ];
}

/** Returns the body fields of a control request and saves the user name. */
export function userValues({ user, reason }) {
  if (user && !caller.isAuthenticated()) settings.user.set(user);
  return { user: user || undefined, reason: reason || undefined };
}
