// Operations of the service: the path of each call, and its function from arguments to result.
export type Json = Record<string, any>;

/** Final failure: Orlog does not repeat the call, and the saga is compensated. */
export class Declined extends Error {
  code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

export const operations: Record<string, (args: Json) => Json> = {
  "/directory.create": ({ name }) => {
    if (/[^\x00-\x7f]/.test(name)) throw new Declined("invalid_name", "the directory accepts ASCII names only");
    return { login: name.toLowerCase() };
  },
  "/directory.remove": () => ({}),
  "/mail.welcome": () => ({}),
};
