// Numbers, times and durations as people read them.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const full = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'long' });

/** How far the clock of the node is ahead of that of this browser, in milliseconds. */
let ahead = 0;

export function nodeTime(iso) {
  ahead = Date.parse(iso) - Date.now();
}

export const now = () => Date.now() + ahead;

export const number = (value) => whole.format(value);
export const compact = (value) => (value < 10_000 ? whole.format(value) : short.format(value));

/** Per second. */
export function rate(value) {
  if (value > 0 && value < 10) return value.toFixed(1);
  return compact(value);
}

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${rest < 10 && unit > 0 ? rest.toFixed(1) : Math.round(rest)} ${units[unit]}`;
}

/** The two largest units: `3 min 20 s`. */
export function duration(millis) {
  const span = Math.abs(millis);
  if (span < 1000) return `${Math.round(span)} ms`;
  const units = [['d', 86_400_000], ['h', 3_600_000], ['min', 60_000], ['s', 1000]];
  const first = units.findIndex(([, size]) => span >= size);
  const parts = [];
  let rest = span;
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${name}`);
  }
  return parts.join(' ');
}

/** `3 min ago`, `in 2 h`. */
export function ago(iso) {
  const span = now() - Date.parse(iso);
  if (Math.abs(span) < 1500) return 'now';
  // Within the hour and after two days one unit says enough.
  const units = Math.abs(span) < 3_600_000 || Math.abs(span) > 2 * 86_400_000 ? 1 : 2;
  const largest = duration(span).split(' ').slice(0, 2 * units).join(' ');
  return span > 0 ? `${largest} ago` : `in ${largest}`;
}

/** The clock, with the day where it is another one. */
export function at(iso) {
  const date = new Date(iso);
  const today = new Date(now()).toDateString() === date.toDateString();
  return today ? clock.format(date) : `${day.format(date)} ${clock.format(date)}`;
}

export const whenFull = (iso) => full.format(new Date(iso));

/** "1 letter", "2 letters". */
export const plural = (count, word, more) => `${number(count)} ${count === 1 ? word : (more ?? `${word}s`)}`;

/** A word of the API for people: `timed_out` → `timed out`. */
export const words = (text) => text.replaceAll('_', ' ');
