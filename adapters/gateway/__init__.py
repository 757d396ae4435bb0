"""The gateway: access by WebSocket, HTTP and server-sent events for programs that do not embed the library."""
