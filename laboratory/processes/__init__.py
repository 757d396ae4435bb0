"""Child processes that can be killed, stopped and started again, and forwarders in processes of their own."""
