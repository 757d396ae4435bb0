"""The load test for locust: ``locust -f loadtest/locustfile.py --headless --network redis://… --run NAME``.

`./dev loadtest` starts a network and runs this file on it. docs/loadtest.md describes how to run it on your own
network, and with workers on other machines. Importing this module patches the process for gevent.
"""

from loadtest.wiring import BUILT_IN

# Locust runs the classes among a file's names.
GameServer, SocketClient, Poster = BUILT_IN
