"""A small HTTP/1.1 server for the proxy's own routes: no routing, no cookies, no decoding; one task a request."""
