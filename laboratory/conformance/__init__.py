"""A gateway that plays every part of the WebSocket protocol to a client in any language, and judges what it reports."""
