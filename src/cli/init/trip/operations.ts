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

let number = 0;

export const operations: Record<string, (args: Json) => Json> = {
  "/flights.book": () => ({ booking: `f-${++number}` }),
  "/flights.cancel": () => ({}),
  "/hotels.book": ({ city }) => {
    if (city === "Atlantis") throw new Declined("no_rooms", "all hotels in Atlantis are full");
    return { booking: `h-${++number}` };
  },
  "/hotels.cancel": () => ({}),
  "/visas.apply": () => ({ visa: `v-${++number}` }),
  "/visas.withdraw": () => ({}),
  "/payments.charge": () => ({ chargeId: `c-${++number}` }),
  "/mail.itinerary": () => ({}),
};
