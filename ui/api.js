// Client of the HTTP API. Every failed request throws a Problem with a message for users.

import { parse } from './json.js';
import * as settings from './settings.js';

/** Request timeout in milliseconds. */
const TIMEOUT_MS = 30_000;

export class Problem extends Error {
  constructor(status, body, login) {
    super(body.detail || body.title || `The node returned status ${status}.`);
    this.status = status;
    this.code = body.code ?? '';
    this.title = body.title ?? '';
    this.errors = body.errors ?? [];
    /** Path that starts a log-in, if the node offers one. */
    this.login = login ?? null;
  }

  get isAccessError() {
    return this.status === 401 || this.status === 403;
  }
}

/** Returns a URL path with encoded segments: `path('v1', 'sagas', saga, correlation)`. */
export function path(...segments) {
  return `/${segments.map(encodeURIComponent).join('/')}`;
}

/** Pods whose data the current responses lack, by path. */
const missing = new Map();

/** Returns the pods whose data the responses of the current view lack. */
export const missingPods = () => [...new Set([...missing.values()].flat())].sort();

/** Ends the responses of a view. */
export const forgetMissingPods = () => missing.clear();

/** The instances of a key-sharded tenant are on several pods, and a pod returns its own ones. */
function noteMissingPods(url, response) {
  const [path] = url.split('?');
  const names = response.headers.get('x-orlog-missing-pods');
  if (names) missing.set(path, names.split(',').map(decodeURIComponent));
  else missing.delete(path);
}

export const get = (url, query, signal) => request('GET', withQuery(url, query), { signal });

export const post = (url, body, { query, headers } = {}) => request('POST', withQuery(url, query), { body: body ?? {}, headers });
export const put = (url, body, { headers } = {}) => request('PUT', url, { body, headers });
export const remove = (url, query) => request('DELETE', withQuery(url, query));

/** Returns a random idempotency key. `crypto.randomUUID` requires HTTPS. */
export const idempotencyKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Returns a full page of a list. Sends requests until the page is full, because a request scans a bounded number of entries. */
export async function page(url, query, cursor, size, signal) {
  const items = [];
  let nextCursor = cursor;
  do {
    const result = await get(url, { ...query, limit: size - items.length, cursor: nextCursor }, signal);
    items.push(...result.items);
    nextCursor = result.next_cursor;
  } while (nextCursor && items.length < size);
  return { items, nextCursor };
}

/** Returns all entries of a list whose number is small, under the field `entries` of its pages. */
export async function all(url, query, signal, entries = 'items') {
  const found = [];
  let cursor = null;
  do {
    const result = await get(url, { ...query, cursor }, signal);
    found.push(...result[entries]);
    cursor = result.next_cursor;
  } while (cursor);
  return found;
}

/** Returns a response as text; for graphs. */
export async function text(url, signal) {
  const response = await send('GET', url, { signal });
  if (!response.ok) throw await problem(response);
  return response.text();
}

/** Returns JSON for any status except access errors: `/health` reports the failed component with status 503. */
export async function getAnyStatus(url, signal) {
  const response = await send('GET', url, { signal });
  const body = await json(response).catch(() => ({}));
  if (response.status === 401 || response.status === 403) throw new Problem(response.status, body, response.headers.get('x-orlog-login'));
  return body;
}

function withQuery(url, query) {
  const entries = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const search = new URLSearchParams(entries).toString();
  return search ? `${url}?${search}` : url;
}

async function request(method, url, options) {
  const response = await send(method, url, options);
  if (method === 'GET') noteMissingPods(url, response);
  if (!response.ok) throw await problem(response);
  return response.status === 204 ? null : json(response);
}

const json = async (response) => parse(await response.text());

async function problem(response) {
  const body = await json(response).catch(() => ({}));
  return new Problem(response.status, body, response.headers.get('x-orlog-login'));
}

async function send(method, url, { body, signal, headers: more } = {}) {
  const headers = { accept: 'application/json', ...more };
  if (settings.tenant.get()) headers['x-tenant-id'] = headerValue(settings.tenant.get());
  if (settings.token.get()) headers.authorization = `Bearer ${settings.token.get()}`;
  // The node requires it for each change, also without a body.
  if (method !== 'GET') headers['content-type'] = 'application/json';
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    return await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      credentials: 'same-origin',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const detail = error.name === 'TimeoutError' ? `no response within ${TIMEOUT_MS / 1000}s` : 'the node is unreachable';
    throw new Problem(0, { title: 'No response', detail });
  }
}

/** Returns the UTF-8 bytes of a text as a byte string, because headers contain bytes. */
function headerValue(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
