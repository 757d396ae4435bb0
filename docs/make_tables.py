"""Print docs/tables.md: the tables of a recorded session, of the schema that reads and writes them."""

from __future__ import annotations

from analytics.session.schema import documentation

HEAD = """\
# Tables of a recorded session

Schema version 2. [recording.md](recording.md) says how they come about, and what the directory holds besides. This
page is generated from the schema: `./dev docs` builds it.
"""


if __name__ == "__main__":
    print(HEAD)
    print("\n".join(documentation()), end="")
