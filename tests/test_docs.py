"""The generated pages are current, and every public name is documented."""

import ast
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from twofold import metrics, stats
from twofold.cli import main
from twofold.scores.registry import step_names

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("page", ["metrics.md", "scores.md", "benchmarks.md", "recipes.md", "commands.md", "data.md"])
def test_the_page_is_current(page):
    if page in ("recipes.md", "data.md", "wrap.md"):
        pytest.importorskip("torch", reason="torch is not installed")
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / page).read_text(encoding="utf-8") == module.PAGES[page]() + module.NOTE, (
        "run python docs/generate.py"
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The run that the pages begin with."""
    out = tmp_path_factory.mktemp("demo") / "twofold-demo"
    assert CliRunner().invoke(main, ["demo", "--out", str(out), "--resamples", "10"]).exit_code == 0
    return out


def pages_with_code():
    """Every page that shows code, as its path below docs; what pages are generated from is on those pages."""
    pages = [path for path in sorted(DOCS.rglob("*.md")) if not path.name.endswith("_intro.md")]
    with_code = [
        path for path in pages if re.search(r"^```(python|sh)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    return [path.relative_to(DOCS).as_posix() for path in with_code]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with_code())
def test_what_a_page_shows_works(page, demo, tmp_path, monkeypatch):
    if page in ("recipes.md", "data.md", "wrap.md"):
        pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo, "twofold-demo")
    languages = ["python"] if page == "benchmarks.md" else ["python", "sh"]  # its shell lines need a network
    command = [sys.executable, DOCS / "executed.py", DOCS / page, *languages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert any(json.loads(done.stdout))


def test_commands_that_run_networks_work_as_shown(tmp_path, monkeypatch):
    """The guide's ``extract`` and ``train``, on pictures and weights of the names that it uses."""
    pytest.importorskip("torch", reason="torch is not installed")
    timm = pytest.importorskip("timm", reason="timm is not installed")
    import safetensors.torch
    from PIL import Image

    from twofold.nn import build

    monkeypatch.chdir(tmp_path)
    np.savez("weights.npz", **{k: v.numpy() for k, v in build("resnet20_cifar", 10).state_dict().items()})
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=2)
    safetensors.torch.save_file(vit.state_dict(), "pretrained.safetensors")
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for digit in range(10):
            folder = Path("photos") / split / str(digit)
            folder.mkdir(parents=True)
            for i in range(13):
                Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    text = (DOCS / "howto.md").read_text(encoding="utf-8").replace("\\\n", " ")
    for name, folder in {"PATH": "train", "imagenet/train": "train", "imagenet/val": "test"}.items():
        text = text.replace(f"folder:{name}", f"folder:photos/{folder}")
    text = text.replace("torchvision:resnet50", "torchvision:resnet18")  # the same options, a quarter of the time
    small = re.findall(r"^twofold (?:extract|train) resnet20_cifar.*", text, flags=re.MULTILINE)
    trainings = re.findall(r"^twofold train .*", text, flags=re.MULTILINE)
    assert len(small) == 1
    assert len(trainings) == 3
    for line in small + trainings:
        words = shlex.split(line)[1:]
        if words[0] == "train" and "--dry-run" not in words:
            words += ["--dry-run", "--batch", "2"]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, (line, result.output)


def public_functions():
    """Every public function and method with its docstring, but not properties, overloads and overrides."""
    source = DOCS.parent / "src" / "twofold"
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        if "cli" in parts or any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        module = ast.parse(file.read_text(encoding="utf-8"))
        owners = [module, *(node for node in module.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")]
        for owner in owners:
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    decorators = {ast.unparse(one) for one in node.decorator_list}
                    if not decorators & {"property", "cached_property", "overload", "override"}:
                        yield pytest.param(node, id=f"{'.'.join(parts)}.{node.name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_what_a_public_function_returns_is_documented(function):
    """`numpydoc lint` checks the parameters, but takes properties for functions that must have a section Returns."""
    docstring = ast.get_docstring(function)
    assert docstring
    returns = None if function.returns is None else ast.unparse(function.returns)
    if returns not in (None, "None", "NoReturn", "Never") and "\nParameters\n---" in docstring:
        assert re.search(r"^(Returns|Yields)\n-+$", docstring, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def markup():
    spec = importlib.util.spec_from_file_location("markup", DOCS / "markup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_marks_of_docstrings_become_markdown(markup):
    text = "See :func:`aurc`, ``conf`` and :math:`x_i`.\n\n.. math:: a\n   + b\n\nEnd."
    assert markup.markdown(text) == "See `aurc`, `conf` and $x_i$.\n\n$$a + b$$\n\nEnd."
    assert markup.markdown(":func:`aurc`", lambda name: f"[{name}][]") == "[aurc][]"


def test_examples_outside_sections_are_fenced(markup):
    text = "Words.\n\n>>> f(1)\n[('a', 'b')]\n\nMore.\n\nExamples\n--------\n>>> g()\n"
    fenced = "```pycon\n>>> f(1)\n[('a', 'b')]\n```"
    assert markup.fence_examples(markup.markdown(text)) == text.replace(">>> f(1)\n[('a', 'b')]", fenced)


def test_tables_of_docstrings_become_markdown(markup):
    headed = "==== ====\nname what\n==== ====\na    one\n     more\nb    two\n==== ===="
    rows = ["| name | what |", "| --- | --- |", "| a | one more |", "| b | two |"]
    assert markup.markdown(headed).splitlines() == rows
    plain = "== ===\na  one\n== ==="
    assert markup.markdown(plain).splitlines() == ["|  |  |", "| --- | --- |", "| a | one |"]


def test_parts_of_recipes_that_the_page_names_exist():
    recipes = pytest.importorskip("twofold.nn.recipes", reason="torch is not installed")
    text = (DOCS / "recipes.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b([A-Z]\w+)\(", text.partition("## Presets")[0]))
    assert {"Clean", "MixUp", "Sharpness"} <= named
    assert [name for name in sorted(named) if not hasattr(recipes, name)] == []


def test_every_kind_of_data_and_every_option_is_on_the_page():
    pytest.importorskip("torch", reason="torch is not installed")
    from twofold.nn.data.readers import READERS
    from twofold.nn.data.shared_keys import SHARED_KEYS

    text = (DOCS / "data.md").read_text(encoding="utf-8")
    for key in SHARED_KEYS:
        assert f"| `{key}` |" in text.partition("## Kinds")[0], key
    for kind, reader in READERS.items():
        section = text.partition(f"### `{kind}:PATH`")[2].partition("\n### ")[0]
        assert section, kind
        for key in reader.keys:
            assert f"| `{key}` |" in section, (kind, key)


def test_the_site_asks_nothing_of_the_network_to_search_from_disk():
    """Material's offline plugin fetches the script that search needs from elsewhere, unless the site brings its own."""
    settings = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert "polyfills: [static/iframe-worker.js]" in settings
    assert "window.Worker=" in (DOCS / "static" / "iframe-worker.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [p.relative_to(DOCS).as_posix() for p in sorted(DOCS.rglob("*.md"))])
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        beside, results = (DOCS / page).parent / target, DOCS.parent / target  # the site has a copy of results/
        assert beside.exists() or (target.startswith("results/") and results.exists()), target


def test_every_step_is_on_the_page():
    text = (DOCS / "scores.md").read_text(encoding="utf-8")
    for name in step_names():
        assert f"### `{name}(" in text, name


def test_public_functions_have_a_docstring_with_an_example():
    for package in (metrics, stats):
        for name in package.__all__:
            thing = getattr(package, name)
            assert inspect.getdoc(thing), name
            if inspect.isfunction(thing) and thing is not metrics.register_metric and name not in ("names", "info"):
                assert ">>>" in inspect.getdoc(thing), f"{name} has no example"
