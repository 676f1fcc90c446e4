"""OpenAI Responses: items instead of messages, over HTTP, server-sent events or a WebSocket."""
