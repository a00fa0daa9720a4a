// Polling of the node. A hidden tab sends no requests. Failures increase the interval. Requests of one loop do not overlap.

/** Maximum interval after failures, in milliseconds. */
const MAX_INTERVAL_MS = 30_000;

let paused = false;
const loops = new Set();

export const isPaused = () => paused;

/** Pauses or resumes all loops. */
export function setPaused(value) {
  paused = value;
  if (!value) for (const loop of loops) loop.now();
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) for (const loop of loops) loop.now();
});

/** Calls `load` immediately and then every `interval` milliseconds. Calls `onError` with each error. */
export function poll(load, interval, onError) {
  let timer;
  let running = false;
  let repeat = false;
  let failures = 0;
  const aborter = new AbortController();
  const loop = {
    async now() {
      clearTimeout(timer);
      if (aborter.signal.aborted) return;
      if (running) {
        repeat = true;
        return;
      }
      running = true;
      try {
        await load(aborter.signal);
        failures = 0;
      } catch (error) {
        if (aborter.signal.aborted) return;
        failures += 1;
        onError(error);
      } finally {
        running = false;
      }
      if (repeat) {
        repeat = false;
        await loop.now();
        return;
      }
      const delay = Math.min(interval * 2 ** failures, Math.max(interval, MAX_INTERVAL_MS));
      timer = setTimeout(() => {
        if (!document.hidden && !paused) loop.now();
      }, delay);
    },
    stop() {
      aborter.abort();
      clearTimeout(timer);
      loops.delete(loop);
    },
  };
  loops.add(loop);
  loop.now();
  return loop;
}
