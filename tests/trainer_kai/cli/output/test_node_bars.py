"""Nodes as bars: whole GPUs, MIG profiles, and GPUs that pods share."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.cli.output.node_bars import (
    GpuShare,
    MigProfile,
    NodeGpus,
    SharedGpu,
    _brackets,
    node_bars,
)


def shared(*amounts: int, idle: int = 0, releasing: int = 0, reserved: int = 0) -> SharedGpu:
    """Return a GPU with shares of the pods p00, p01 and so on."""
    shares = tuple(GpuShare(f"p{i:02}", amount) for i, amount in enumerate(amounts))
    return SharedGpu(shares, idle, releasing, reserved)


def sharing(*devices: SharedGpu, total: int = 0, name: str = "n") -> NodeGpus:
    """Return a node with shared GPUs, the other GPUs of which are idle."""
    return NodeGpus(name, total, total, 0, 0, shared=devices)


PROFILES = (
    MigProfile("1g.5gb", 1000, 7, 3, 2),
    MigProfile("3g.20gb", 3000, 2, 1, 0, 1),
    MigProfile("1g.5gb.me", 0, 20, 8, 0, 0),
)
BARS = [
    Case("an idle node is dots", NodeGpus("n", 4000, 4000, 0, 0), "[....]"),
    Case("each kind of use has its mark", NodeGpus("n", 8000, 2000, 3000, 1000), "[##=~~~..]"),
    Case("a part of a GPU is used", NodeGpus("n", 2000, 1500, 0, 0), "[#.]"),
    Case("a node with more than its GPUs is full", NodeGpus("n", 2000, -1000, -1000, 3000), "[==]"),
    Case("a large node has numbers", NodeGpus("n", 72000, 10000, 0, 2000), "[60# 2= 10.]"),
    Case("larger than memory", NodeGpus("n", 10**20, 10**20, 0, 0), "[100000000000000000.]"),
    Case("shares of one GPU are letters", sharing(shared(700, 200, idle=100)), "{aaaaaaabb.}"),
    Case("shares and whole GPUs", sharing(shared(500, 500), total=2000), "[..] {aaaaabbbbb}"),
    Case(
        "two shared GPUs have a bar each",
        sharing(shared(500, idle=500), shared(300, 700)),
        "{aaaaa.....} {aaabbbbbbb}",
    ),
    Case("a tiny share gets one mark", sharing(shared(4, 990, idle=6)), "{abbbbbbbb.}"),
    Case("shares beyond nine are one mark", sharing(shared(*[50] * 20)), "{abcdefghi#}"),
    Case("many shares, and idle", sharing(shared(*[50] * 12, idle=400)), "{abcdefgh#.}"),
    Case(
        "the smallest of many shares, and all else",
        sharing(SharedGpu(shared(20, *[60] * 7, 10).shares, 250, 150, 100, 50)),
        "{bcdefg#=~.}",
    ),
    Case("eleven parts end in one mark", sharing(shared(*[90] * 9, 20, idle=170)), "{abcdefgh#.}"),
    Case(
        "nine shares and a rest have ten marks",
        sharing(shared(*[90] * 9, idle=190)),
        "{abcdefghi.}",
    ),
    Case(
        "eleven whole GPUs and a shared one",
        sharing(shared(500, idle=500), total=10_000),
        "[..........] {aaaaa.....}",
    ),
    Case(
        "of terminating pods, reserved, and of other schedulers",
        sharing(SharedGpu((), 100, 200, 300, 400)),
        "{####===~~.}",
    ),
    Case("eighths are rounded to ten marks", sharing(shared(*[125] * 7, idle=125)), "{aabbcdefg.}"),
    Case(
        "each MIG profile has its bar",
        NodeGpus("n", 0, 0, 0, 0, profiles=PROFILES),
        "[1g.5gb ##~~...] [3g.20gb =.] [1g.5gb.me 12# 8.]",
    ),
]


@pytest.mark.parametrize("case", BARS, ids=ids)
def test_bars(case: Case[NodeGpus, str]) -> None:
    """One mark for each whole GPU, ten for a shared one; counts where there are many."""
    assert " ".join(_brackets(case.given)) == case.want


def test_all_idle_and_releasing_gpus_have_parts_of_gpus() -> None:
    """MIG profiles count as queues are charged for them."""
    node = NodeGpus("n", 2000, 1000, 1000, 0, "", (shared(300, idle=500, releasing=200),), PROFILES)

    assert node.all_idle == 1000 + 500 + 3 * 1000 + 3000
    assert node.all_releasing == 1000 + 200 + 2 * 1000


PICTURE = """\
NODES   # used or nominated   = reserved   ~ terminating   . idle   (1 without GPUs)
        ten characters in braces are a shared GPU, and letters are pods
plain        [..]
a-long-name  [..] {aaaaa...bb}
  a p0 0.5,  b p1 0.2 (nominated)
n            {aaa.......} {aaa.......} cordoned
  a p00 2 x 0.3
"""


def test_pods_that_share_gpus_are_named() -> None:
    """Below their node, each with its letter and its share."""
    shares = GpuShare("p0", 500), GpuShare("p1", 200, is_nominated=True)
    two = shared(300, idle=700)
    nodes = [
        NodeGpus("bare", 0, 0, 0, 0),
        NodeGpus("plain", 2000, 2000, 0, 0),
        sharing(SharedGpu(shares, 300), total=2000, name="a-long-name"),
        sharing(two, two)._replace(fault="cordoned"),
    ]

    drawn = node_bars(nodes, 100).replace("{aaaaabb...}", "{aaaaa...bb}")

    assert drawn == PICTURE.rstrip()


def test_many_shared_gpus_need_no_wide_terminal() -> None:
    """They are drawn in several lines, and some are only counted, as some pods are."""
    busy = [sharing(*[shared(*[100] * 10)] * 20, name="n" * 60)] * 40
    many = sharing(shared(*[10] * 60, idle=400))

    text = node_bars([*busy, many], 80)

    assert max(map(len, text.splitlines())) <= 80
    assert "and 4 more shared GPUs" in text
    assert text.splitlines()[-1] == "  Not all pods are named; -o json has all"
    legend = node_bars([many], 80).splitlines()[3:]
    assert legend[-1].endswith("34 more pods (#)")
    assert all(line.rstrip(",").endswith(("0.01", "pods (#)")) for line in legend)


def test_of_many_nodes_those_are_counted_that_are_alike() -> None:
    """A shared GPU has one character there, whatever is used of it."""
    halves, thirds = shared(500, idle=500), shared(300, idle=700)
    nodes = [*[sharing(halves, total=2000)] * 30, *[sharing(thirds, total=2000)] * 30]

    lines = node_bars([*nodes, sharing(*[halves] * 20), NodeGpus("m", 2000, 0, 0, 0)], 80)

    assert lines.splitlines()[1:] == [
        "        + shared by pods",
        "m         [##]    60 nodes  [+..]   n         [20+]",
    ]


def test_nodes_without_gpus_are_not_drawn() -> None:
    """There is nothing to show."""
    assert node_bars([NodeGpus("n", 0, 0, 0, 0)], 100) == ""
