"""The log of the daemons: one format for all of them, on standard error."""

from __future__ import annotations

import logging
import time
from typing import Literal

import click
import orjson

from cli.reporting import printable

LogFormat = Literal["text", "json"]

log_option = click.option(
    "--log",
    "log_format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How the log on standard error is written: a line of text each, or a line of JSON.",
)


def daemon_logger(name: str) -> logging.Logger:
    """Return the logger of what a daemon says of itself, of which all is shown."""
    return logging.getLogger(f"gamecast.daemon.{name}")


def log_as(log_format: LogFormat) -> None:
    """Write the log of this process to standard error: warnings, and what the daemon says of itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler])
    logging.getLogger("gamecast.daemon").setLevel(logging.INFO)


def is_json() -> bool:
    """Return whether the log of this process is JSON."""
    return any(isinstance(each.formatter, JsonLines) for each in logging.getLogger().handlers)


class TextLines(logging.Formatter):
    """Formats each record as one line, ``time level logger: message``, and a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = f"{_at(record)} {record.levelname} {record.name}: {printable(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """Formats each record as one line of JSON: at, level, logger, message, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {"at": _at(record), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _at(record: logging.LogRecord) -> str:
    """Return the time of a record, in UTC, to the millisecond."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
