"""Module `skein.tornado`: authentication of a tornado web service by Hadoop's simple scheme."""

from typing import Any, Optional

from tornado import web

from .exceptions import unsupported

_COOKIE = "skein.user"


class SimpleAuthMixin:
    """Takes the user from the unauthenticated parameter `user.name`, and remembers it in a cookie."""

    def get_current_user(self) -> Optional[str]:
        """Returns the user of the request."""
        handler: Any = self
        user = handler.get_query_argument("user.name", None)
        if user is not None:
            handler.set_cookie(_COOKIE, user)
            return str(user)
        return handler.get_cookie(_COOKIE) or None

    def prepare(self) -> None:
        """Rejects a request without a user, where a login page would be requested."""
        handler: Any = self
        if handler.get_current_user() is None:
            raise web.HTTPError(401, reason="add the parameter `user.name`")


class KerberosAuthMixin:
    """Rejected: authenticate requests with a proxy in front of the service."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        raise unsupported("tornado.KerberosAuthMixin", "authenticate requests with a proxy in front of the service, such as Knox")


def init_kerberos(*_args: Any, **_options: Any) -> None:
    """Rejected: authenticate requests with a proxy in front of the service."""
    raise unsupported("tornado.init_kerberos", "authenticate requests with a proxy in front of the service, such as Knox")
