"""The transit-stub generator, against what GT-ITM's model says of its networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csgraph

from laboratory.placing.transit_stub import Internetwork, Level, TransitStub, transit_stub
from sequencing.errors import UsageError


def drawn(parameters: TransitStub, seed: int = 0) -> Internetwork:
    return transit_stub(parameters, np.random.default_rng(seed))


@pytest.mark.parametrize("nodes", [1_000, 2_000, 5_000, 10_000, 20_000])
def test_networks_of_about_any_size_can_be_asked_for(nodes: int) -> None:
    assert abs(TransitStub().resized(nodes).size - nodes) <= 0.03 * nodes


def test_the_default_is_the_papers_size_and_one_seed_gives_one_network() -> None:
    one, same, other = drawn(TransitStub()), drawn(TransitStub()), drawn(TransitStub(), seed=1)
    assert len(one.network.names) == 10_000
    assert (one.network.links - same.network.links).count_nonzero() == 0
    assert (one.network.links - other.network.links).count_nonzero() > 0


def test_domains_are_connected_and_stubs_have_one_way_out() -> None:
    found = drawn(TransitStub().resized(2_000))
    links, parameters = found.network.links.tocoo(), found.parameters
    stub_of, domain_of = found.stub, found.domain
    assert len(np.unique(stub_of[stub_of >= 0])) == parameters.top.nodes * parameters.transit.nodes * parameters.stubs
    leaving = (stub_of[links.row] >= 0) & (stub_of[links.row] != stub_of[links.col])
    assert (stub_of[links.col[leaving]] == -1).all()
    assert np.bincount(stub_of[links.row[leaving]]).tolist() == [1] * (stub_of.max() + 1)
    assert (domain_of[links.row[leaving]] == domain_of[links.col[leaving]]).all()
    whole = found.network.links
    for group in [np.flatnonzero(stub_of == stub) for stub in range(40)] + [
        np.flatnonzero((stub_of == -1) & (domain_of == domain)) for domain in range(parameters.top.nodes)
    ]:
        parts, _ = csgraph.connected_components(whole[group][:, group], directed=False)
        assert parts == 1


def test_the_shortest_way_between_nodes_of_a_stub_stays_in_it() -> None:
    found = drawn(TransitStub().resized(1_000))
    inside = np.flatnonzero(found.stub == 3)
    alone = csgraph.dijkstra(found.network.links[inside][:, inside], directed=False)
    assert np.allclose(found.network.ms_from(inside)[:, inside], alone)


def test_delays_grow_from_stub_to_domain_to_internetwork() -> None:
    found = drawn(TransitStub())
    random = np.random.default_rng(0)
    sample = random.choice(found.stub_nodes, 60, replace=False)
    ms = found.network.ms_from(sample)
    same_stub = found.stub[sample][:, None] == found.stub[None, :]
    same_domain = (found.domain[sample][:, None] == found.domain[None, :]) & ~same_stub
    other = found.domain[sample][:, None] != found.domain[None, :]
    inside, near, far = (float(np.median(ms[kind & (ms > 0)])) for kind in (same_stub, same_domain, other))
    assert inside < 6 < near < 60 < far < 200
    # No way is shorter than the straight line, nor, in a network of this kind, very much longer on average.
    straight = np.hypot(*(found.place_ms[sample][:, None] - found.place_ms[None, :]).transpose(2, 0, 1))
    assert (ms >= straight - 1e-9).all()
    assert 1.1 < ms[other].sum() / straight[other].sum() < 2.0


def test_extra_links_lead_from_stubs_to_transit_nodes_and_to_other_stubs() -> None:
    plain = TransitStub().resized(1_000)
    found = drawn(replace(plain, extra_transit_stub=20, extra_stub_stub=30))
    before = drawn(plain)
    assert 0 < (found.network.links.nnz - before.network.links.nnz) / 2 <= 50
    links = found.network.links.tocoo()
    between_stubs = (found.stub[links.row] >= 0) & (found.stub[links.col] >= 0)
    assert (found.stub[links.row[between_stubs]] != found.stub[links.col[between_stubs]]).sum() / 2 > 20


def test_waxman_links_are_short_ones() -> None:
    far = Level(60, 100.0, 1.0, beta=0.1, method="waxman")
    found = drawn(TransitStub(top=Level(1, 0.0, 1.0), transit=far, stub=Level(1, 0.0, 1.0), stubs=1))
    links = found.network.links.tocoo()
    transit = (found.stub[links.row] == -1) & (found.stub[links.col] == -1)
    places = found.place_ms[found.stub == -1]
    anywhere = np.hypot(*(places[:, None] - places[None, :]).transpose(2, 0, 1))
    assert links.data[transit].mean() < 0.5 * anywhere[anywhere > 0].mean()


def test_parameters_that_nobody_means_are_refused() -> None:
    with pytest.raises(UsageError, match="hardly ever connected"):
        drawn(TransitStub(stub=Level(30, 3.0, 0.01)))
    with pytest.raises(UsageError, match="impossible parameters"):
        drawn(TransitStub(top=Level(3, 10.0, 1.5)))
