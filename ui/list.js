// Lists that are read again at an interval, page by page.

import * as api from './api.js';
import { pager, turnPage } from './components.js';

/**
 * Opens the list of a view: reads the current page of `path` every `interval` milliseconds, and renders it above a pager.
 *
 * - `query()` returns the filters of the request.
 * - `render(items, isFirst)` returns the content of a page.
 *
 * Returns `refresh`, which reads the page again, and `restart`, which begins at the first page, for example with other filters.
 */
export function openList(page, { path, interval, size, query = () => ({}), render }) {
  const state = { cursors: [''], nextCursor: null };
  const refresh = page.poll(async (signal) => {
    const { items, nextCursor } = await api.page(path, query(), state.cursors.at(-1), size, signal);
    state.nextCursor = nextCursor;
    page.render(render(items, state.cursors.length === 1), pager(state, changePage));
  }, interval);

  function changePage(forward) {
    turnPage(state, forward);
    refresh();
  }

  function restart() {
    state.cursors = [''];
    refresh();
  }
  return { refresh, restart };
}
