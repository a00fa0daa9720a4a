"""Operations of the service: the path of each call, and its function from arguments to result."""


class Declined(Exception):
    """Final failure: Orlog does not repeat the call, and the saga is compensated."""

    def __init__(self, code, message):
        self.code, self.message = code, message


def create_account(arguments):
    if not arguments["name"].isascii():
        raise Declined("invalid_name", "the directory accepts ASCII names only")
    return {"login": arguments["name"].lower()}


OPERATIONS = {
    "/directory.create": create_account,
    "/directory.remove": lambda arguments: {},
    "/mail.welcome": lambda arguments: {},
}
