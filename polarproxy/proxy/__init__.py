"""The aiohttp application: address, exchange, upstream, record; and the control routes."""
