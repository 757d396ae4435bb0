"""The way in for those who do not embed the library: WebSocket, HTTP and server-sent events, with guards."""
