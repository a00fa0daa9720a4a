// Asks the node. Every error is a Problem with a sentence that can be shown to people.

import * as settings from './settings.js';

/** No answer may take longer, in milliseconds. */
const PATIENCE = 30_000;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The node answered ${status}.`);
    this.status = status;
    this.code = body.code ?? '';
    this.title = body.title ?? '';
    this.places = body.errors ?? [];
  }

  get isAccess() {
    return this.status === 401 || this.status === 403;
  }
}

/** A path from parts that may hold anything: `path('v1', 'sagas', saga, correlation)`. */
export function path(...parts) {
  return `/${parts.map(encodeURIComponent).join('/')}`;
}

export async function get(url, query, signal) {
  const entries = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const search = new URLSearchParams(entries).toString();
  return ask('GET', search ? `${url}?${search}` : url, undefined, signal);
}

export const post = (url, body) => ask('POST', url, body ?? {});
export const remove = (url) => ask('DELETE', url);

/** Text, for pictures. */
export async function text(url, signal) {
  const response = await send('GET', url, undefined, signal);
  if (!response.ok) throw await problem(response);
  return response.text();
}

/** JSON whatever the status is: /health tells what is wrong with a 503. */
export async function look(url, signal) {
  const response = await send('GET', url, undefined, signal);
  const body = await response.json().catch(() => ({}));
  if (response.status === 401 || response.status === 403) throw new Problem(response.status, body);
  return body;
}

async function ask(method, url, body, signal) {
  const response = await send(method, url, body, signal);
  if (!response.ok) throw await problem(response);
  return response.status === 204 ? null : response.json();
}

async function problem(response) {
  const body = await response.json().catch(() => ({}));
  return new Problem(response.status, body);
}

async function send(method, url, body, signal) {
  const headers = { accept: 'application/json' };
  if (settings.tenant.get()) headers['x-tenant-id'] = header(settings.tenant.get());
  if (settings.token.get()) headers.authorization = `Bearer ${settings.token.get()}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const patience = AbortSignal.timeout(PATIENCE);
  try {
    return await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
      credentials: 'same-origin',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const detail = error.name === 'TimeoutError' ? `no answer within ${PATIENCE / 1000} seconds` : 'the node does not answer';
    throw new Problem(0, { title: 'No answer', detail });
  }
}

/** Headers carry bytes: a name that is not ASCII goes as the bytes of its UTF-8. */
function header(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
