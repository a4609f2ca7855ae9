"""A module of a user's own, which tasks have not got installed."""


class Refused(Exception):
    """An exception of a user's own."""


def double(number):
    return 2 * number


def refuse(why):
    raise Refused(why)


def by_index(base):
    import ydl

    return base + ydl.task().index
