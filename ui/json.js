// JSON with whole numbers of any size: a number of JavaScript loses digits above 2^53.

/** Whether this browser keeps the text of a number: `JSON.rawJSON`, since Chrome 114, Firefox 135 and Safari 18.4. */
const KEEPS_DIGITS = typeof JSON.rawJSON === 'function';

/** Whole number that a number of JavaScript would change. As a text it has all digits. */
class LargeInteger {
  constructor(digits) {
    this.digits = digits;
  }

  toString() {
    return this.digits;
  }

  toJSON() {
    return JSON.rawJSON(this.digits);
  }
}

/** Text, or number with all its parts: the digits after a decimal point are no whole number. */
const TEXT_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Returns a value for display. In a browser that cannot keep their digits, large whole numbers become texts. */
export function parse(text) {
  return KEEPS_DIGITS ? JSON.parse(text, withDigits) : JSON.parse(text.replace(TEXT_OR_NUMBER, (token) => (isLarge(token) ? `"${token}"` : token)));
}

/** Returns the value of an input. Throws if this browser would change a number. */
export function parseInput(text) {
  if (!KEEPS_DIGITS && text.match(TEXT_OR_NUMBER)?.some(isLarge)) throw new Error('this browser cannot send a whole number with that many digits: use the command line, or a newer browser');
  return parse(text);
}

function withDigits(name, value, { source } = {}) {
  return typeof value === 'number' && isLarge(source) ? new LargeInteger(source) : value;
}

/** Whether a value has no parts. */
export function isScalar(value) {
  return value === null || typeof value !== 'object' || value instanceof LargeInteger;
}

function isLarge(token) {
  return /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
}
