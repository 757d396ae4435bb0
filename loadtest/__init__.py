"""Workloads that press on a running network and judge what its subscribers saw."""
