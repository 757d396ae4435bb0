"""``gamecast.analytics``, from where users import."""

import subprocess
import sys

import pytest

import analytics as folder
from gamecast import analytics


def test_the_facade_has_the_names_of_the_folder_and_the_same_objects() -> None:
    assert dir(analytics) == dir(folder)
    assert "TABLES" in dir(analytics)
    assert analytics.TABLES is folder.TABLES


def test_a_name_that_is_not_there_says_so() -> None:
    with pytest.raises(ImportError, match="nothing"):
        from gamecast.analytics import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_importing_it_imports_neither_pyarrow_nor_pyspark() -> None:
    look = (
        "import sys; from gamecast.analytics import TABLES; print(sorted({'pyarrow', 'pyspark'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
