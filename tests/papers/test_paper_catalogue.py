"""Every numbered table and figure of the papers is listed; the list here was written from the papers by hand."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from twofold import papers
from twofold.cli import main
from twofold.errors import InvalidInput, UnknownName
from twofold.papers.plan import STATES


def numbered(kind, first, last, prefix=""):
    return [f"{kind}{prefix}{number}" for number in range(first, last + 1)]


ITEMS = {
    "sure_plus": [*numbered("table", 1, 7), *numbered("figure", 1, 2), *numbered("algorithm", 1, 2)],
    "unknown_detection": [*numbered("table", 1, 7), *numbered("figure", 1, 7)],
    "aurc_estimators": ["table1", "tableS2", *numbered("figure", 1, 6), *numbered("figure", 7, 28, "S")],
    "stratified_ood": [
        *numbered("table", 1, 3),
        *numbered("figure", 1, 2),
        *(f"distances-{name}" for name in ("cifar10", "supercifar100", "cifar100", "tinyimagenet")),
    ],
    "fd_shifts": [*numbered("table", 1, 16), *numbered("figure", 1, 11), "listing1"],
}


def test_the_papers_are_those_of_the_list():
    assert set(papers.names()) == set(ITEMS)


@pytest.mark.parametrize("name", ITEMS)
def test_every_numbered_item_is_listed(name):
    assert sorted(papers.load(name).plans) == sorted(ITEMS[name])


def every_plan():
    return [plan for name in papers.names() for plan in papers.load(name).plans.values()]


@pytest.mark.parametrize("plan", every_plan(), ids=lambda plan: plan.id)
def test_every_plan_is_told_in_full(plan):
    assert plan.state in STATES
    assert plan.title
    assert plan.says.endswith(".")
    assert bool(plan.reason) == (plan.state in ("illustration", "impossible"))
    assert papers.find(plan.id) is plan


def test_papers_list_has_the_promised_keys():
    result = CliRunner().invoke(main, ["papers", "list", "--json"])
    rows = json.loads(result.stdout)
    assert {row["id"] for row in rows} == {f"{name}/{item}" for name, items in ITEMS.items() for item in items}
    for row in rows:
        assert set(row) == {"id", "kind", "title", "state"}
        assert row["kind"] in ("result", "settings", "illustration")


@pytest.mark.parametrize("plan", every_plan(), ids=lambda plan: plan.id)
def test_every_plan_is_shown_without_data(plan, monkeypatch):
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    text = CliRunner().invoke(main, ["papers", "show", plan.id])
    assert text.exit_code == 0, text.output
    shown = json.loads(CliRunner().invoke(main, ["papers", "show", plan.id, "--json"]).stdout)
    assert shown["says"] == plan.says
    assert bool(shown["printed"]) == (plan.printed is not None)
    for scale in shown["scales"].values():
        assert not any(is_here for need, is_here in scale["needs"].items() if not need.startswith(("gauss", "unif")))


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'sure_plus'"):
        papers.load("sureplus")
    with pytest.raises(UnknownName, match="did you mean 'table1'"):
        papers.find("sure_plus/tabel1")
    with pytest.raises(InvalidInput, match="named PAPER/ITEM"):
        papers.find("sure_plus")
    with pytest.raises(InvalidInput, match="cannot be read"):
        papers.load("nowhere.toml")
