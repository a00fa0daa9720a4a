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
  "/stock.reserve": ({ sku, quantity }) => {
    if (quantity > 100) throw new Declined("out_of_stock", `only 100 of ${sku} are in stock`);
    return { reservation: `r-${++number}` };
  },
  "/stock.release": () => ({}),
  "/payments.charge": ({ amount }) => {
    if (amount > 100_000) throw new Declined("card_declined", "the limit of the card is 1000.00");
    return { chargeId: `c-${++number}` };
  },
  "/payments.refund": () => ({}),
  "/shipping.ship": () => ({ tracking: `t-${++number}` }),
};
