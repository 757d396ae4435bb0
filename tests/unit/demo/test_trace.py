"""Reading a recorded match: the one we have, others that look different, and what is malformed."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from demo.match.trace import MatchEvent, read_match
from sequencing.errors import InvalidInput
from tests.shared_data import BLACK_GOLD, needs_shared_data

PLAYERS = "player,team_last\np0,1\np1,2\n"
POSITIONS = "t_s,player,x_m,y_m,z_m,team,squad\n1,p0,10,3,-20,1,2\n2,p1,0.5,3,7,2,0\n"
EVENTS = (
    "seq,t_s,kind,actor,target,x_m,z_m,team,detail\n"
    "0,0.00,join,p0,,,,,\n"
    "1,1.50,kill,p0,p1,-5,6.5,1,spear\n"
    "2,1.50,down,p1,,-5,6.5,2,\n"
)


def trace(
    directory: Path, *, players: str = PLAYERS, positions: str = POSITIONS, events: str = EVENTS, suffix: str = ""
) -> Path:
    """Write the three files; ``suffix`` ".gz" compresses all but the players."""
    (directory / "match_players.csv").write_text(players, encoding="utf-8")
    for part, text in (("positions", positions), ("events", events)):
        data = text.encode()
        (directory / f"match_{part}.csv{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    return directory / "match"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_players_positions_and_events_are_read(tmp_path: Path, suffix: str) -> None:
    match = read_match(trace(tmp_path, suffix=suffix))
    assert match.name == "match"
    assert [(player.name, player.extra) for player in match.players] == [
        ("p0", {"team_last": "1"}),
        ("p1", {"team_last": "2"}),
    ]
    assert match.positions.t_s.tolist() == [1, 2]
    assert list(match.positions.player) == ["p0", "p1"]
    assert match.positions.x_m.tolist() == [10, 0.5]
    assert match.positions.z_m.tolist() == [-20, 7]
    assert {name: list(column) for name, column in match.positions.extra.items()} == {
        "y_m": ["3", "3"],
        "team": ["1", "2"],
        "squad": ["2", "0"],
    }
    assert match.events == (
        MatchEvent(0.0, "join", "p0", "", None, None, "", {}),
        MatchEvent(1.5, "kill", "p0", "p1", -5, 6.5, "spear", {"team": "1"}),
        MatchEvent(1.5, "down", "p1", "", -5, 6.5, "", {"team": "2"}),
    )


def test_another_game_with_fewer_and_other_columns_is_read(tmp_path: Path) -> None:
    match = read_match(
        trace(
            tmp_path,
            players="player\nann\n",
            positions="player,z_m,x_m,t_s,mana\nann,1,2,3,90\n",
            events="kind,t_s,spell\nmeteor,4,\nteleport,3,blue\n",
        )
    )
    assert list(match.positions.extra) == ["mana"]
    assert match.positions.x_m.tolist() == [2]
    # Without seq, rows are by time.
    assert [(event.kind, event.actor, event.x_m, event.extra) for event in match.events] == [
        ("teleport", "", None, {"spell": "blue"}),
        ("meteor", "", None, {}),
    ]


def test_events_are_in_the_order_of_time_and_seq_and_positions_in_that_of_time(tmp_path: Path) -> None:
    match = read_match(
        trace(
            tmp_path,
            positions="t_s,player,x_m,z_m\n2,p1,0,0\n1,p1,5,5\n1,p0,6,6\n",
            events="seq,t_s,kind\n10,2,c\n9,2,b\n11,1,a\n",
        )
    )
    assert match.positions.t_s.tolist() == [1, 1, 2]
    assert list(match.positions.player) == ["p1", "p0", "p1"]
    assert match.positions.x_m.tolist() == [5, 6, 0]
    assert [event.kind for event in match.events] == ["a", "b", "c"]


def test_quotes_byte_order_marks_crlf_and_empty_lines_are_fine(tmp_path: Path) -> None:
    match = read_match(
        trace(
            tmp_path,
            players='\ufeffplayer,note\r\n"o\'neil, ""the kid""","two\nlines"\r\n\r\np1,\r\n',
            events="t_s,kind\n",
        )
    )
    assert [player.name for player in match.players] == ['o\'neil, "the kid"', "p1"]
    assert match.events == ()


def test_positions_and_events_may_be_empty_but_for_their_header(tmp_path: Path) -> None:
    match = read_match(trace(tmp_path, positions="t_s,player,x_m,z_m\n", events="t_s,kind\n"))
    assert len(match.positions) == 0


@pytest.mark.parametrize(
    ("part", "text", "complaint"),
    [
        ("positions", "t_s,player,x_m,z_m\n1,p0,1,1\n2,p0,east,1\n", "line 3: x_m must be a number, not 'east'"),
        ("positions", "t_s,player,x_m,z_m\n1,p0,1,nan\n", "line 2: z_m must be a number, not 'nan'"),
        ("positions", "t_s,player,x_m,z_m\n1,p0,inf,1\n", "line 2: x_m must be a number, not 'inf'"),
        ("positions", "t_s,player,x_m,z_m\n,p0,1,1\n", "line 2: t_s must be a number, not ''"),
        ("positions", "t_s,player,x_m,z_m\n1,,1,1\n", "line 2: player is empty"),
        ("positions", "t_s,player,x_m,z_m\n1,p0,1,1\n\n1,p0,1\n", "line 4: 3 cells, but the header has 4"),
        ("positions", "t_s,player,x_m\n", "line 1: the header needs the columns z_m, and has t_s, player, x_m"),
        ("positions", "", "line 1: the header needs the columns t_s, player, x_m, z_m, and has nothing"),
        ("events", "t_s,kind,x_m,z_m\n1,a,1,1\n2,b,1,\n", "line 3: one of x_m and z_m is there without the other"),
        ("events", "t_s,kind,x_m\n1,a,1\n", "line 2: one of x_m and z_m is there without the other"),
        ("events", "t_s,kind,x_m,z_m\n1,a,1,up\n", "line 2: z_m must be a number, not 'up'"),
        ("events", "t_s,kind\n1,a\nsoon,b\n", "line 3: t_s must be a number, not 'soon'"),
        ("events", "t_s,kind\n1,\n", "line 2: kind is empty"),
        ("events", "t_s,kind,kind\n1,a,b\n", "line 1: the header has the columns kind twice"),
        ("events", "seq,t_s,kind\n,1,a\n", "line 2: seq must be a number, not ''"),
        ("events", 't_s,kind\n1,"a\n', "unexpected end of data"),
        ("players", "player\np0\np0\n", "line 3: player 'p0' is there already"),
        ("players", "name\np0\n", "line 1: the header needs the columns player, and has name"),
    ],
)
def test_a_malformed_row_is_named_with_its_file(tmp_path: Path, part: str, text: str, complaint: str) -> None:
    prefix = trace(tmp_path, **{part: text})
    with pytest.raises(InvalidInput) as raised:
        read_match(prefix)
    assert f"{prefix}_{part}.csv" in str(raised.value)
    assert complaint in str(raised.value)


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    prefix = trace(tmp_path)
    (tmp_path / "match_players.csv").write_bytes(b"player\np0\np\xff\n")
    with pytest.raises(InvalidInput, match=r"match_players\.csv, line 3: is not UTF-8"):
        read_match(prefix)


def test_compressed_data_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    prefix = trace(tmp_path, suffix=".gz")
    file = tmp_path / "match_events.csv.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InvalidInput, match=r"match_events\.csv\.gz, line \d+: the gzip data is cut off"):
        read_match(prefix)


def test_a_missing_trace_names_the_files_that_were_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_match(tmp_path / "nowhere" / "match")
    for part in ("players", "positions", "events"):
        assert f"{tmp_path}/nowhere/match_{part}.csv (or .csv.gz)" in str(raised.value)


def test_a_trace_with_a_file_missing_names_that_one(tmp_path: Path) -> None:
    prefix = trace(tmp_path)
    (tmp_path / "match_events.csv").unlink()
    with pytest.raises(InvalidInput) as raised:
        read_match(prefix)
    assert "match_events.csv" in str(raised.value)
    assert "match_players.csv" not in str(raised.value)


@needs_shared_data
def test_the_recorded_match_is_read_whole_and_fast() -> None:
    begun_s = time.process_time()
    match = read_match(BLACK_GOLD)
    seconds = time.process_time() - begun_s
    assert (len(match.players), len(match.positions), len(match.events)) == (139, 139_720, 6_436)
    assert sum(event.x_m is not None for event in match.events) == 5_884
    # About 0.6 s on two quiet cores.
    assert seconds < 10
