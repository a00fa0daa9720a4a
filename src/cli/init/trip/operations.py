"""Operations of the service: the path of each call, and its function from arguments to result."""
import itertools

numbers = itertools.count(1)


class Declined(Exception):
    """Final failure: Orlog does not repeat the call, and the saga is compensated."""

    def __init__(self, code, message):
        self.code, self.message = code, message


def book_hotel(arguments):
    if arguments["city"] == "Atlantis":
        raise Declined("no_rooms", "all hotels in Atlantis are full")
    return {"booking": f"h-{next(numbers)}"}


OPERATIONS = {
    "/flights.book": lambda arguments: {"booking": f"f-{next(numbers)}"},
    "/flights.cancel": lambda arguments: {},
    "/hotels.book": book_hotel,
    "/hotels.cancel": lambda arguments: {},
    "/visas.apply": lambda arguments: {"visa": f"v-{next(numbers)}"},
    "/visas.withdraw": lambda arguments: {},
    "/payments.charge": lambda arguments: {"chargeId": f"c-{next(numbers)}"},
    "/mail.itinerary": lambda arguments: {},
}
