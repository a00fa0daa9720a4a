// Asks again and again while somebody looks: never in a hidden tab, less often when the node does not answer, never twice at once.

/** The longest pause after failures, in milliseconds. */
const LONGEST = 30_000;

let paused = false;
const loops = new Set();

export const isPaused = () => paused;

/** People can stop what moves. */
export function pause(yes) {
  paused = yes;
  if (!yes) for (const loop of loops) loop.now();
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) for (const loop of loops) loop.now();
});

/** Calls `look` now and then every `every` milliseconds; `failed` hears of errors. */
export function watch(look, every, failed) {
  let timer;
  let running = false;
  let again = false;
  let failures = 0;
  const aborter = new AbortController();
  const loop = {
    async now() {
      clearTimeout(timer);
      if (aborter.signal.aborted) return;
      if (running) {
        again = true;
        return;
      }
      running = true;
      try {
        await look(aborter.signal);
        failures = 0;
      } catch (error) {
        if (aborter.signal.aborted) return;
        failures += 1;
        failed(error);
      } finally {
        running = false;
      }
      if (again) {
        again = false;
        await loop.now();
        return;
      }
      const pause = Math.min(every * 2 ** failures, Math.max(every, LONGEST));
      timer = setTimeout(() => {
        if (!document.hidden && !paused) loop.now();
      }, pause);
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
