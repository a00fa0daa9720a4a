// Formats numbers, times and durations for display.

const wholeNumber = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const compactNumber = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const timeOfDay = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const dayOfYear = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const fullTime = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'long' });

/** Offset of the node clock relative to the browser clock, in milliseconds. */
let offset = 0;

export function setNodeTime(iso) {
  offset = Date.parse(iso) - Date.now();
}

export const now = () => Date.now() + offset;

export const number = (value) => wholeNumber.format(value);
export const compact = (value) => (value < 10_000 ? wholeNumber.format(value) : compactNumber.format(value));

/** Formats a rate per second. */
export function rate(value) {
  if (value > 0 && value < 10) return value.toFixed(1);
  return compact(value);
}

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size < 10 && unit > 0 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

/** Formats a duration with its two largest units: `3 min 20 s`. */
export function duration(millis) {
  const span = Math.abs(millis);
  if (span < 1000) return `${Math.round(span)} ms`;
  const units = [['d', 86_400_000], ['h', 3_600_000], ['min', 60_000], ['s', 1000]];
  const first = units.findIndex(([, size]) => span >= size);
  const parts = [];
  let remainder = span;
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(remainder / size);
    remainder -= count * size;
    if (count) parts.push(`${count} ${name}`);
  }
  return parts.join(' ');
}

/** Formats a time relative to now: `3 min ago`, `in 2 h`. */
export function relative(iso) {
  const span = now() - Date.parse(iso);
  if (Math.abs(span) < 1500) return 'now';
  // One unit is precise enough within the hour and after two days.
  const units = Math.abs(span) < 3_600_000 || Math.abs(span) > 2 * 86_400_000 ? 1 : 2;
  const largest = duration(span).split(' ').slice(0, 2 * units).join(' ');
  return span > 0 ? `${largest} ago` : `in ${largest}`;
}

/** Formats the time of day, with the date if it is not today. */
export function absolute(iso) {
  const date = new Date(iso);
  const isToday = new Date(now()).toDateString() === date.toDateString();
  return isToday ? timeOfDay.format(date) : `${dayOfYear.format(date)} ${timeOfDay.format(date)}`;
}

export const full = (iso) => fullTime.format(new Date(iso));

/** Formats the date and the time of day in a time zone: `Mon, 1 Mar 2027, 02:00:00`. In UTC if the browser does not know the zone. */
export function inZone(iso, timeZone) {
  const options = { weekday: 'short', day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' };
  try {
    return new Intl.DateTimeFormat('en-GB', { ...options, timeZone }).format(new Date(iso));
  } catch {
    return new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC', timeZoneName: 'short' }).format(new Date(iso));
  }
}

/** Formats a count with its noun: "1 timer", "2 timers". */
export const plural = (count, singular, other) => `${number(count)} ${count === 1 ? singular : (other ?? `${singular}s`)}`;

/** Replaces underscores of an API value with spaces: `timed_out` → `timed out`. */
export const words = (text) => text.replaceAll('_', ' ');

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);
