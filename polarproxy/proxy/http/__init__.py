"""A small HTTP/1.1 client for one engine: no redirects, no cookies, no decoding; bytes in, bytes out."""
