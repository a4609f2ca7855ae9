"""Module `skein.ui`: pages of an application. ydl has no proxy, so a page is reached at its own address."""

import json
from typing import Any, Dict, Optional, Tuple
from urllib.parse import urlsplit

from .exceptions import unsupported
from .objects import Base
from .operations import exists, put

#: Prefix of the keys of pages in the job's store.
_PREFIX = "skein.ui.page/"


class ProxiedPage(Base):
    """Page of an application. Its address is that of its target."""

    _params = ("route", "target", "link_name")

    def __init__(self, route: str, target: str, link_name: Optional[str] = None) -> None:
        self.route, self.target, self.link_name = route, target, link_name

    def __repr__(self) -> str:
        return "ProxiedPage<route={!r}>".format(self.route)

    @property
    def address(self) -> str:
        """Address of the page."""
        return self.target if urlsplit(self.target).path else self.target + "/"


class WebUI:
    """Pages of an application, which are listed in the job's store."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __repr__(self) -> str:
        return "WebUI<{}>".format(self._client.id)

    @property
    def address(self) -> str:
        """Rejected: the master has no web interface."""
        raise unsupported("ui.address", "the master has no web interface; each page has its own address")

    @property
    def addresses(self) -> Tuple[str, ...]:
        """Rejected: the master has no web interface."""
        raise unsupported("ui.addresses", "the master has no web interface; each page has its own address")

    @property
    def proxy_prefix(self) -> str:
        """Rejected: the master has no web interface."""
        raise unsupported("ui.proxy_prefix", "the master has no web interface; each page has its own address")

    def add_page(self, route: str, target: str, link_name: Optional[str] = None) -> ProxiedPage:
        """Lists a page, which is reached at its target."""
        if not isinstance(route, str) or not route or "/" in route:
            raise ValueError("route must be a valid path segment, got {!r}".format(route))
        if urlsplit(target).scheme not in ("http", "https"):
            raise ValueError("target must be a valid url, got {!r}".format(target))
        named = [page.route for page in self.get_pages().values() if link_name and page.link_name == link_name]
        if named:
            raise ValueError("A page already exists with this link name: {!r}".format(link_name))
        record = json.dumps({"target": target, "link_name": link_name}).encode()
        key = _PREFIX + route
        done = self._client.kv.transaction([exists(key)], [], [put(key, record)])
        if done.succeeded:
            raise ValueError("A page already exists with this route: {!r}".format(route))
        return ProxiedPage(route, target, link_name)

    def remove_page(self, route: str) -> None:
        """Removes a page from the list."""
        if not self._client.kv.discard(_PREFIX + route):
            raise ValueError("No page exists with this route: {!r}".format(route))

    def get_pages(self) -> Dict[str, ProxiedPage]:
        """Returns the pages by route."""
        pages = {}
        for key, value in self._client.kv.get_prefix(_PREFIX).items():
            route, record = key[len(_PREFIX) :], json.loads(value)
            pages[route] = ProxiedPage(route, record["target"], record["link_name"])
        return pages
