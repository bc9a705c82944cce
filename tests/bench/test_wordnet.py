"""WordNet rules: a hand-made noun file with known answers, damaged files, and the counts of the real WordNet 3.0."""

import json
import os
from pathlib import Path

import pytest

import twofold
from twofold.bench.wordnet import WordNet, build, keywords, spelling
from twofold.errors import InvalidInput

# name: (words, hypernyms, instance hypernyms); knife_fork has two parents, bay_bridge is an instance
WORLD = {
    "entity": ("entity", "", ""),
    "tool": ("tool", "entity", ""),
    "hand_tool": ("hand_tool", "tool", ""),
    "plunger": ("plunger plumber's_helper", "hand_tool", ""),
    "opener": ("opener", "hand_tool", ""),
    "can_opener": ("can_opener tin_opener", "opener", ""),
    "garden_tool": ("garden_tool lawn_tool", "tool", ""),
    "mower": ("lawn_mower mower", "garden_tool", ""),
    "cutlery": ("cutlery", "tool", ""),
    "knife": ("knife", "cutlery", ""),
    "fork": ("fork", "cutlery", ""),
    "knife_fork": ("spork", "knife fork", ""),
    "structure": ("structure", "entity", ""),
    "bridge": ("bridge span", "structure", ""),
    "bay_bridge": ("Bay_Bridge", "", "bridge"),
    "shirt": ("shirt", "entity", ""),
    "tee": ("jersey T-shirt tee_shirt", "shirt", ""),
    "chimp": ("chimpanzee", "entity", ""),
    "shop": ("butcher's_shop", "structure", ""),
    "door": ("barn_door", "structure", ""),
}
LICENCE = "  1 This is WordNet 3.0 for tests  \n  2 of no other use  \n"


def write(folder: Path, world=WORLD, licence=LICENCE) -> dict[str, str]:
    """Write data.noun and index.noun in the wndb format; offsets are byte positions, as in the real files."""

    def line(name: str, at: dict[str, int]) -> str:
        words, up, instance_of = (part.split() for part in world[name])
        pointers = [("@", p) for p in up] + [("@i", p) for p in instance_of]
        pointers += [("~", c) for c, (_, parents, _) in world.items() if name in parents.split()]
        listed = "".join(f"{symbol} {at.get(to, 0):08d} n 0000 " for symbol, to in pointers)
        spelled = "".join(f"{w} 0 " for w in words)
        return (
            f"{at.get(name, 0):08d} 03 n {len(words):02x} {spelled}{len(pointers):03d} {listed}| a gloss with @ 1  \n"
        )

    at, here = {}, len(licence)
    for name in world:
        at[name] = here
        here += len(line(name, {}))
    folder.mkdir(exist_ok=True)
    (folder / "data.noun").write_text(licence + "".join(line(name, at) for name in world), newline="\n")
    senses: dict[str, list[str]] = {}
    for name, (words, _, _) in world.items():
        for word in words.split():
            senses.setdefault(word.lower(), []).append(f"{at[name]:08d}")
    rows = [f"{w} n {len(s)} 2 @ ~ {len(s)} 0 {' '.join(s)}  \n" for w, s in sorted(senses.items())]
    (folder / "index.noun").write_text(licence + "".join(rows), newline="\n")
    return {name: f"n{offset:08d}" for name, offset in at.items()}


@pytest.fixture
def world(tmp_path):
    wnids = write(tmp_path / "wn")
    return tmp_path / "wn", WordNet.read(tmp_path / "wn"), wnids


def names(wnids, of):
    back = {w: name for name, w in of.items()}
    return {back[w] for w in wnids}


def test_read_gives_words_parents_children_and_senses(world):
    _, net, w = world
    assert len(net) == len(WORLD)
    assert net.version == "3.0"
    assert net.synsets[w["plunger"]].words == ("plunger", "plumber's_helper")
    assert net.synsets[w["knife_fork"]].parents == (w["knife"], w["fork"])
    assert net.synsets[w["bay_bridge"]].parents == (w["bridge"],)
    assert net.synsets[w["tool"]].children == (w["hand_tool"], w["garden_tool"], w["cutlery"])
    assert net.synsets[w["entity"]].parents == ()
    assert net.senses("Hand tool") == (w["hand_tool"],)
    assert net.senses("nothing") == ()


def test_subtree_and_descent(world):
    _, net, w = world
    assert names(net.subtree([w["knife_fork"]]), w) == {"knife_fork", "knife", "fork", "cutlery", "tool", "entity"}
    assert net.subtree([]) == frozenset()
    for low, high in (("knife_fork", "fork"), ("knife_fork", "knife_fork"), ("bay_bridge", "structure")):
        assert net.descends(w[low], w[high])
    assert not net.descends(w["fork"], w["knife_fork"])
    assert not net.descends(w["fork"], w["knife"])


def test_descent_is_that_of_a_slow_walk(world):
    _, net, w = world

    def below(low, high):
        _, up, instance_of = WORLD[low]
        return low == high or any(below(p, high) for p in (up + " " + instance_of).split())

    for low in WORLD:
        for high in WORLD:
            assert net.descends(w[low], w[high]) == below(low, high), (low, high)


def test_external_drops_same_and_descending_classes_with_their_reason(world):
    _, net, w = world
    cut = net.external([w[n] for n in ("knife_fork", "bridge", "cutlery", "mower")], [w["knife"], w["bridge"]])
    assert cut.kept == (w["cutlery"], w["mower"])  # an ancestor of an ID class stays, as the rule says
    assert cut.removed == {
        w["knife_fork"]: f"descends from the ID class knife ({w['knife']})",
        w["bridge"]: "is an ID class",
    }


def test_near_candidates_are_under_the_direct_parent_as_in_the_paper_figure(world):
    _, net, w = world
    pool = [w[n] for n in ("can_opener", "plunger", "mower", "knife", "bay_bridge", "hand_tool")]
    own = [w["plunger"], w["mower"]]
    near = net.near_candidates(pool, own)
    assert names(near, w) == {"can_opener", "hand_tool"}  # nothing else under garden_tool; tool is no direct parent
    assert names(net.external_remainder(pool, own, near), w) == {"knife", "bay_bridge"}
    assert names(net.near_candidates([w["fork"], w["knife"]], [w["knife_fork"]]), w) == {"fork", "knife"}  # two parents
    assert net.near_candidates(pool, [w["entity"]]) == ()  # a root has no parent


def test_far_drops_a_name_when_any_variant_is_a_node(world):
    _, net, w = world
    own = [w[n] for n in ("knife_fork", "tee", "chimp", "shop", "door", "bay_bridge")]
    gone = ("knives", "steak knife", "tee", "tshirts", "chimp", "butchers_shop", "butcher shop", "barndoor")
    gone += ("barn-doors", "Bridges", "structure", "t-shirt", "brooklyn_bridge")
    kept = ("doorbell", "kni", "shopping", "opener", "mower", "5")  # opener, mower: nouns outside the subtree
    cut = net.far([*gone, *kept], own)
    assert cut.kept == kept
    assert tuple(cut.removed) == gone
    assert cut.removed["steak knife"] == f"'knife' names knife ({w['knife']})"


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("cup cakes", "cup cups cake cakes cupcake cupcakes"),  # the paper's worked example
        ("donuts", "donut"),
        ("head phones", "headphones headphone head phone telephone"),
        ("badlands", "badland"),
        ("artists loft", "artistloft artist loft"),
        ("childs room", "childroom child"),
        ("hot dog", "hotdog hotdogs"),
        ("chess board", "chessboard"),
        ("dumb_bell", "dumbbell"),
        ("fishpond", "fishpond"),
        ("chimp", "chimpanzee chimpanzees"),
        ("artist loft", "artistsloft"),  # artist's loft
        ("butcher's shop", "butchersshop butchershop butcher shop"),
        ("butcher\u2019s shop", "butchersshop"),
        ("T-shirt", "tshirt tee teeshirt shirt"),
        ("tee", "tshirt"),
        ("strawberries", "strawberry"),
        ("cherry", "cherries"),
        ("wolf", "wolves"),
        ("knives", "knife"),
        ("boxes", "box"),
        ("children", "child"),
        ("mouse", "mice"),
        ("firemen", "fireman"),
        ("056.dog", "dog"),
        ("/a/airfield", "airfield"),
        ("hot and sour soup", "soup soursoup"),
    ],
)
def test_keywords_cover_the_variations_of_the_paper(name, forms):
    assert set(forms.split()) <= set(keywords(name))


def test_keywords_leave_out_single_letters_numbers_and_false_singulars():
    assert not {"a", "t", "101"} & set(keywords("a t-shirt 101"))
    assert "glas" not in keywords("glass")
    assert "octopu" not in keywords("octopus")
    assert "tenni" not in keywords("tennis")
    assert len(keywords(" ".join(["boxes"] * 30))) < 5000  # long names do not explode
    with pytest.raises(InvalidInput, match="must hold letters"):
        keywords("--")


def test_spelling_joins():
    assert spelling("Arabian_camel") == spelling("arabian camel") == spelling("Arabian-Camel") == "arabiancamel"


def test_build_accounts_for_every_class_once(world):
    folder, _, w = world
    pool = [w[n] for n in WORLD]
    own = [w["plunger"], w["fork"]]
    built = build(folder, id=own, pool=pool, far={"Food": ["fork lift", "pizza"], "Places": []}, near_count=2, seed=3)
    candidates = {"hand_tool", "opener", "can_opener", "cutlery", "knife", "knife_fork"}
    assert len(built.near) == 2
    assert names(built.near, w) <= candidates
    assert names(built.external, w) == set(WORLD) - candidates - {"plunger", "fork"}
    assert names(built.removed, w) == (candidates - names(built.near, w)) | {"plunger", "fork"}
    assert sorted([*built.near, *built.external, *built.removed]) == sorted(pool)
    assert built.far == {"Food": ("pizza",), "Places": ()}
    assert list(built.far_removed["Food"]) == ["fork lift"]
    assert built.removed[w["plunger"]] == "is an ID class"
    undrawn = (names(built.removed, w) & {"opener", "can_opener", "hand_tool"}).pop()
    assert f"hand tool ({w['hand_tool']}), parent of plunger ({w['plunger']})" in built.removed[w[undrawn]]
    assert json.loads(built.to_json())["near"] == list(built.near)
    assert json.loads(built.to_json())["wordnet"] == "3.0"


def test_build_without_near_uses_the_external_rule_and_the_id_subtree(world):
    folder, net, w = world
    pool = [w[n] for n in ("knife_fork", "opener", "mower")]
    built = build(folder, id=[w["knife"]], pool=pool, far={"far": ["mower", "cutlery"]}, near_count=None)
    assert (built.near, built.external) == ((), net.external(pool, [w["knife"]]).kept)
    assert built.far == {"far": ("mower",)}


def test_build_repeats_and_depends_on_the_seed_only(world):
    folder, _, w = world
    pool = [w[n] for n in WORLD]
    own = [w["plunger"], w["fork"]]
    first = build(folder, id=own, pool=pool, near_count=3)
    assert first.to_json() == build(folder, id=own, pool=pool, near_count=3).to_json()
    assert first.near == build(folder, id=own, pool=pool[::-1], near_count=3).near
    assert len({build(folder, id=own, pool=pool, near_count=3, seed=s).near for s in range(10)}) > 1
    assert build(folder, id=own, pool=pool, near_count=0).near == ()


def test_bad_requests_say_what_came(world):
    folder, net, w = world
    with pytest.raises(InvalidInput, match=r"1 of 2 wnids are not in this WordNet 3\.0, first n99999999"):
        net.external([w["fork"], "n99999999"], [])
    with pytest.raises(InvalidInput, match=r"must hold wnids .* got 'fork'"):
        net.subtree(["fork"])
    with pytest.raises(InvalidInput, match="twice"):
        net.near_candidates([w["fork"], w["fork"]], [])
    with pytest.raises(InvalidInput, match="single string"):
        net.far("fork", [w["fork"]])
    with pytest.raises(InvalidInput, match="must hold strings, got 3"):
        net.far([3], [w["fork"]])
    with pytest.raises(InvalidInput, match="near_count is 9, but the pool has 1 near candidates"):
        build(folder, id=[w["fork"]], pool=[w["knife"]], near_count=9)
    with pytest.raises(InvalidInput, match="near_count must be a whole number"):
        build(folder, id=[w["fork"]], pool=[w["knife"]], near_count=-1)
    with pytest.raises(InvalidInput, match="far must map names of far sets"):
        build(folder, id=[w["fork"]], far=["pizza"])
    with pytest.raises(InvalidInput, match="id is empty"):
        build(folder, id=[])


def test_cycles_are_refused(tmp_path):
    loop = WORLD | {"opener": ("opener", "can_opener", "")}
    write(tmp_path / "wn", loop)
    with pytest.raises(InvalidInput, match="is its own ancestor"):
        WordNet.read(tmp_path / "wn")
    write(tmp_path / "wn", WORLD | {"opener": ("opener", "opener", "")})
    with pytest.raises(InvalidInput, match=r"\(opener\) is its own ancestor"):
        WordNet.read(tmp_path / "wn")


def test_windows_line_ends_read_the_same(world):
    folder, net, _ = world
    for file in ("data.noun", "index.noun"):
        (folder / file).write_bytes((folder / file).read_bytes().replace(b"\n", b"\r\n"))
    assert WordNet.read(folder).synsets == net.synsets


def test_missing_files_are_named(tmp_path, world):
    folder, _, _ = world
    with pytest.raises(InvalidInput, match=r"data\.noun cannot be read .*folder of WordNet"):
        WordNet.read(tmp_path / "nowhere")
    (folder / "index.noun").unlink()
    with pytest.raises(InvalidInput, match=r"index\.noun cannot be read"):
        WordNet.read(folder)


@pytest.mark.parametrize("file", ["data.noun", "index.noun"])
def test_files_cut_anywhere_are_refused(world, file):
    folder, _, _ = world
    whole = (folder / file).read_bytes()
    for length in range(0, len(whole) - 1, 7):
        (folder / file).write_bytes(whole[:length])
        with pytest.raises(InvalidInput, match="damaged or cut short"):
            WordNet.read(folder)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("data.noun", b" n 02 can_opener", b" n 03 can_opener"),
        ("data.noun", b" n 02 can_opener", b" v 02 can_opener"),
        ("data.noun", b" n 02 can_opener", b" n xx can_opener"),
        ("data.noun", b"001 @ ", b"002 @ "),
        ("data.noun", b"@ 0", b"@ 9"),
        ("data.noun", b"entity", b"\xff\xfe"),
        ("index.noun", b"knife n 1", b"knife n 2"),
        ("index.noun", b"knife n 1", b"knife v 1"),
        ("index.noun", b"knife n 1", b"knife n"),
        ("index.noun", b"1 0 0", b"1 0 9"),
    ],
)
def test_damage_is_one_clear_error(world, file, old, new):
    folder, _, _ = world
    whole = (folder / file).read_bytes()
    assert old in whole
    (folder / file).write_bytes(whole.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=rf"{file}.*damaged or cut short"):
        WordNet.read(folder)


def test_a_synset_given_twice_is_refused(world):
    folder, _, _ = world
    lines = (folder / "data.noun").read_bytes().splitlines(keepends=True)
    (folder / "data.noun").write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(InvalidInput, match="is listed twice"):
        WordNet.read(folder)


# One sense of each CIFAR-100 class; only camel (n02437136) and mouse (n02330245) are published
CIFAR100 = """
    n07739125 n01443537 n09827683 n02131653 n02363005 n02818832 n02206856 n02164464 n02834778 n02876657
    n02881193 n10285313 n02898711 n02924116 n02274259 n02437136 n02946921 n02980441 n02309337 n02402425
    n03001627 n02481823 n03046257 n11439690 n02233338 n04256520 n01976957 n01697178 n03147509 n01699831
    n02068974 n02503517 n02657368 n08438533 n02118333 n10129825 n02342885 n03544360 n01877134 n03085013
    n03636649 n03649909 n02128385 n02129165 n01674464 n01982650 n10287213 n12752205 n03790512 n09359803
    n02330245 n12997919 n12268246 n07747607 n12041446 n02444819 n12582231 n07767847 n03930630 n11608250
    n09393605 n03959485 n11900569 n02346627 n01874928 n02324045 n02508021 n01495701 n04096066 n04099429
    n12620196 n09426788 n02076196 n01482330 n01891633 n02445715 n04233124 n01944390 n01726692 n01772222
    n02355227 n04335435 n11978233 n07720615 n04379243 n04389033 n04401088 n04405907 n02129604 n04465501
    n04468005 n02537085 n12454159 n01662784 n04550184 n02062744 n12724942 n02114100 n10787470 n01922303
"""
# second senses of table, possum, lamp, mushroom and plate, which bring the removed classes to the published 42
SECOND = "n04379964 n01881171 n03636248 n07734744 n07579787"


@pytest.fixture(scope="module")
def real():
    folder = Path(os.environ.get("WNSEARCHDIR", "/usr/share/wordnet"))
    if not (folder / "data.noun").is_file():
        pytest.skip("no WordNet: set WNSEARCHDIR to a folder with data.noun and index.noun of WordNet 3.0")
    net = WordNet.read(folder)
    if len(net) != 82115:
        pytest.skip(f"{folder} is not WordNet 3.0, whose noun file has 82,115 synsets")
    return net


@pytest.fixture(scope="module")
def shipped():
    text = (Path(twofold.__file__).parent / "nn" / "data" / "lists" / "imagenet.json").read_text(encoding="utf-8")
    return json.loads(text)


def test_the_real_wordnet_removes_42_classes_of_tiny_imagenet(real, shipped):
    tiny, own = shipped["imagenet200"], CIFAR100.split()  # ImageNet-200 is Tiny-ImageNet's 200
    assert (len(tiny), len(own)) == (200, 100)
    natural, wide = real.external(tiny, own), real.external(tiny, own + SECOND.split())
    assert (len(natural.removed), len(wide.removed), len(wide.kept)) == (37, 42, 158)
    assert set(wide.kept) == set(shipped["tiny_imagenet158"])
    assert {"n02917067", "n04146614"} <= wide.removed.keys()  # bullet train and school bus, named in the paper
    assert "bus" in wide.removed["n04146614"]


def test_the_real_wordnet_gives_405_near_candidates_and_395_external_classes(real, shipped):
    own = shipped["imagenet200"]
    pool = sorted(own + shipped["imagenet_near"] + shipped["imagenet_external"])
    assert len(pool) == 1000
    near = real.near_candidates(pool, own)
    assert set(near) == set(shipped["imagenet_near"])
    assert set(real.external_remainder(pool, own, near)) == set(shipped["imagenet_external"])
    assert (len(near), len(pool) - 200 - len(near)) == (405, 395)


def test_the_real_wordnet_knows_the_published_senses(real):
    assert "n02437136" in real.senses("camel")
    assert "n02330245" in real.senses("mouse")
    scenes = ["bedroom", "church_outdoor", "classroom", "conference_room", "dining_room", "kitchen", "tower"]
    assert real.far([*scenes, "bridge"], CIFAR100.split()).kept == tuple(scenes)  # the paper kept bridge as well
