"""Operations of the service: the path of each call, and its function from arguments to result."""
import itertools

numbers = itertools.count(1)


class Declined(Exception):
    """Final failure: Orlog does not repeat the call, and the saga is compensated."""

    def __init__(self, code, message):
        self.code, self.message = code, message


def reserve(arguments):
    if arguments["quantity"] > 100:
        raise Declined("out_of_stock", f"only 100 of {arguments['sku']} are in stock")
    return {"reservation": f"r-{next(numbers)}"}


def charge(arguments):
    if arguments["amount"] > 100_000:
        raise Declined("card_declined", "the limit of the card is 1000.00")
    return {"chargeId": f"c-{next(numbers)}"}


OPERATIONS = {
    "/stock.reserve": reserve,
    "/stock.release": lambda arguments: {},
    "/payments.charge": charge,
    "/payments.refund": lambda arguments: {},
    "/shipping.ship": lambda arguments: {"tracking": f"t-{next(numbers)}"},
}
