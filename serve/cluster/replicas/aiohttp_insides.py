"""What pith uses of aiohttp that aiohttp does not promise to keep."""

from aiohttp import web


class LateHead(web.StreamResponse):
    """A reply whose head leaves with its first item. Without this name it leaves before: a packet more a request."""

    _send_headers_immediately = False
