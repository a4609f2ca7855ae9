"""Module of a user that is not installed in tasks."""


class Rejected(Exception):
    """Exception of a user's module."""


def double(number):
    return 2 * number


def reject(reason):
    raise Rejected(reason)


def by_index(base):
    import ydl

    return base + ydl.task().index
