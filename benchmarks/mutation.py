"""Mutation testing: change one token of the code at a time, and see whether the quick tests notice.

    pip install -e ".[test,mutation]" -c constraints.txt
    nice -n 10 python benchmarks/mutation.py [--workers 2]          (one to two hours; Ctrl-C and run again to resume)
    nice -n 10 python benchmarks/mutation.py --again                (only what survived, after tests were added)
    python benchmarks/mutation.py --list                            (what is drawn, without running it)
    python benchmarks/mutation.py --summary                         (print the kept rows in short)
    python benchmarks/mutation.py --page                            (write results/mutation.md from the kept rows)

The operators are cosmic-ray's: comparisons, arithmetic, signs, `and`/`or`/`not`, constants, booleans, loops, caught
exceptions. Decorated functions are mutated too. Changes that prove nothing are left out: annotations, docstrings,
code that does not compile, and operators of another type (`a + b` to `a << b` fails on any float).

``benchmarks/mutation.toml`` lists the modules with their tests, how many mutants are drawn from each, and the survivors
that are equivalent with the reason. The draw is by the hash of the seed and of the mutated line itself, so that an edit
elsewhere in a file leaves it alone. First a place is drawn, then one change at that place: cosmic-ray has six
replacements for every `+` and two for every number, which would otherwise fill the sample with arithmetic.

Each worker has a private copy of the tracked files; the working tree is never touched. First the tests run once on the
unchanged code, with a probe before the statement of every mutant: they must pass, and they show which of them reach it.
A mutant then runs those, its own module's first and the quickest first, and the first failure ends it; code that runs at
import, and compiled kernels, get all tests of their module. Each runs in a process forked from one that has imported
NumPy, SciPy, numba and pytest, but nothing of twofold. More than ``CPU`` times the usual processor time counts as noticed
("timeout"). Results are written to ``results/mutation.csv`` as they come.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import script  # noqa: F401  ends with one line instead of a traceback

from twofold import __version__
from twofold.stats import clopper_pearson

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "benchmarks" / "mutation.toml"
RESULTS = ROOT / "results" / "mutation.csv"
PAGE = ROOT / "results" / "mutation.md"
COMMAND = "python benchmarks/mutation.py --workers 2"
CPU = 2  # times the seconds of the unchanged code, plus GRACE, of processor time before a mutant counts as stuck
GRACE = 40.0  # enough for a worker to compile its kernels
COMPILING = 90.0  # instead of GRACE, where all kernels compile again
WALL = 900.0  # seconds of the clock, for a mutant that waits for ever
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow")
BITS = ("BitOr", "BitAnd", "BitXor")
ORDER = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
NOTICED = ("killed", "timeout")


@dataclass(frozen=True)
class Mutant:
    """Hold one changed token: where it is, what the line was and what it became."""

    module: str
    definition: str
    line: int
    operator: str
    before: str
    after: str
    repeat: int  # which one, where a definition has the same line several times
    source: str  # the whole changed module

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies the mutant however the rest of the file changes."""
        return self.module, self.definition, self.before, self.after, str(self.repeat)


@dataclass(frozen=True)
class Row:
    """Hold one line of results/mutation.csv."""

    module: str
    definition: str
    line: str
    operator: str
    before: str
    after: str
    repeat: str
    outcome: str  # killed, timeout, survived or equivalent
    test: str  # the first test that noticed
    reason: str  # why a survivor is equivalent
    command: str = COMMAND
    version: str = __version__

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The key of the mutant."""
        return self.module, self.definition, self.before, self.after, self.repeat


# Drawing


def kept_operators() -> list[str]:
    """List the cosmic-ray operators that are used."""
    pairs = [(ARITHMETIC, "ReplaceBinaryOperator"), (BITS, "ReplaceBinaryOperator")]
    pairs.append((ORDER, "ReplaceComparisonOperator"))
    names = []
    for kinds, prefix in pairs:
        names += [f"{prefix}_{a}_{b}" for a in kinds for b in kinds if a != b]
    names += ["ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is"]
    names += ["ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_Invert"]
    names += ["ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot"]
    names += ["ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "NumberReplacer"]
    names += ["ZeroIterationForLoop"]
    return [f"core/{name}" for name in names]


class _Bare(ast.NodeTransformer):
    """Remove what does not run: annotations, docstrings, and the marks between parameters."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        self.generic_visit(node)
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]  # whether by place or by keyword
        node.defaults = [*node.defaults, *filter(None, node.kw_defaults)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Pass() if is_text else self.generic_visit(node)


def what_runs(source: str) -> str:
    """Return the syntax tree of a module without annotations and docstrings."""
    return ast.dump(_Bare().visit(ast.parse(source)))


def definitions(source: str) -> list[str]:
    """Return the qualified name of the function or class around each line, the module's own lines having none."""
    names = [""] * (source.count("\n") + 2)

    def visit(node: ast.AST, around: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = around
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{around}.{child.name}" if around else child.name
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                for line in range(first, (child.end_lineno or child.lineno) + 1):
                    names[line] = name
            visit(child, name)

    visit(ast.parse(source), "")
    return names


def hashed(*parts: object) -> str:
    """Compute a number that depends on these words alone."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()


def places(source: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Find every place of a module that can change, with the operators and their occurrence there."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast(source)))
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in kept_operators():
        operator = get_operator(name)()
        occurrence = 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                found.setdefault(start, []).append((name, occurrence))
                occurrence += 1
    return found


def changed_lines(old: str, new: str) -> tuple[int, str, str]:
    """Find the first line (from 1) in which two texts differ, as it was and as it became."""
    for i, (a, b) in enumerate(zip(old.splitlines(), new.splitlines(), strict=False)):
        if a != b:
            return i + 1, " ".join(a.split()), " ".join(b.split())
    raise ValueError("the texts are equal")


def drawn_from(module: str, source: str, each: int, seed: int) -> Iterator[Mutant]:
    """Yield the mutants of one module: places in the order of their hashes, one change at each."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    lines, names, original = source.splitlines(), definitions(source), what_runs(source)
    seen: Counter[tuple[str, str, int]] = Counter()
    order = []
    for (line, column), changes in sorted(places(source).items()):
        text = lines[line - 1].strip()
        column -= len(lines[line - 1]) - len(lines[line - 1].lstrip())
        repeat = seen[names[line], text, column]
        seen[names[line], text, column] += 1
        order.append((hashed(seed, module, names[line], text, column, repeat), line, repeat, changes))
    found = 0
    for place, line, repeat, changes in sorted(order):
        if found == each:
            return
        for name, occurrence in sorted(changes, key=lambda change: hashed(place, change[0], changes.index(change))):
            new = mutate_code(source, get_operator(name)(), occurrence)
            try:
                differs = new is not None and what_runs(new) != original
            except SyntaxError:
                differs = False
            if differs:
                _, before, after = changed_lines(source, new)
                yield Mutant(module, names[line], line, name.removeprefix("core/"), before, after, repeat, new)
                found += 1
                break


def named(entry: dict[str, str]) -> Mutant:
    """Build a mutant that the settings spell out."""
    module = entry["module"]
    source = (ROOT / module).read_text(encoding="utf-8")
    if source.count(entry["before"]) != 1:
        raise SystemExit(f"{module} holds {entry['before']!r} {source.count(entry['before'])} times, not once")
    new = source.replace(entry["before"], entry["after"])
    line, before, after = changed_lines(source, new)
    return Mutant(module, definitions(source)[line], line, "named", before, after, 0, new)


def draw(settings: dict[str, object], work: Path) -> list[Mutant]:
    """Draw all mutants of the settings, evenly over the modules; kept in the work folder for the next time."""
    found = []
    for module in settings["tests"]:
        source = (ROOT / module).read_text(encoding="utf-8")
        what = hashed(module, source, settings["each"], settings["seed"], *kept_operators())
        kept = work / f"draw-{what[:24]}.json"
        if not kept.is_file():
            new = [asdict(m) for m in drawn_from(module, source, settings["each"], settings["seed"])]
            kept.write_text(json.dumps(new), encoding="utf-8")
        found += [Mutant(**entry) for entry in json.loads(kept.read_text(encoding="utf-8"))]
    return found + [named(entry) for entry in settings["named"]]


# Running


class _Probed(ast.NodeTransformer):
    """Put a probe before the innermost statement of a function that holds the line of a mutant."""

    def __init__(self, lines: dict[int, list[int]]) -> None:
        self.lines = lines
        self.placed: set[int] = set()
        self.depth = 0

    def visit(self, node: ast.AST) -> ast.AST:
        is_function = isinstance(node, ast.FunctionDef)
        self.depth += is_function
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [new for old in statements for new in self._with_probe(old)])
        for handler in getattr(node, "handlers", []):
            self.visit(handler)
        self.depth -= is_function
        return node

    def _with_probe(self, statement: ast.stmt) -> list[ast.stmt]:
        if not isinstance(statement, ast.Match):
            self.visit(statement)
        if not self.depth or isinstance(statement, ast.ImportFrom):
            return [statement]
        reached = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        here = [i for line in reached for i in self.lines.get(line, []) if i not in self.placed]
        self.placed.update(here)
        text = f"__import__('{PROBE}').hit({here})"
        return [*(ast.parse(text).body if here else []), statement]


PROBE = "mutation_probe"
PROBE_SOURCE = """current, reached = None, {}


def hit(mutants):
    for i in mutants:
        reached.setdefault(i, {})[current] = None
"""


class Recorder:
    """Record as a pytest plugin which test reached which probe, and how long each took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        sys.modules[PROBE].current = nodeid

    def pytest_runtest_logreport(self, report: object) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


class Tree:
    """Hold a private copy of the tracked files, in which one mutant at a time is tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "pytest.log"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in listed.decode().split("\0"):
            source = ROOT / name
            if name.startswith(("src/", "tests/", "docs/", "pyproject.toml", "README.md")) and source.is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, folder / name)  # with its time: compiled kernels of an earlier run stay valid

    def start(self, mutant: Mutant, tests: list[str], limit: float) -> int:
        """Test a mutant in a forked process; its id."""
        compiled = self.folder / "numba"
        shutil.copy2(self.folder / mutant.module, self.folder / "unchanged")
        (self.folder / mutant.module).write_text(mutant.source, encoding="utf-8")
        if "_kernels" in mutant.module:  # compiled again, beside what the others share
            compiled = self.folder / "numba-mutant"
            shutil.rmtree(compiled, ignore_errors=True)
        child = os.fork()
        if child == 0:
            self._test(tests, limit, compiled)
        return child

    def probe(self, mutants: list[Mutant], options: list[str], file: str) -> dict[str, dict[str, float]]:
        """Run a file of tests on the unchanged code: which tests reach each mutant, and their seconds."""
        answer = self.folder / "reached.json"
        answer.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            self._test([*options, file], 0, self.folder / "numba", recorder=Recorder(), answer=answer)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{file} fails without any change:\n{self.log.read_text()[-3000:]}")
        return json.loads(answer.read_text(encoding="utf-8"))

    def place_probes(self, mutants: list[Mutant]) -> list[bool]:
        """Write the modules with probes; whether each mutant has one."""
        (self.folder / "src" / f"{PROBE}.py").write_text(PROBE_SOURCE, encoding="utf-8")
        placed: set[int] = set()
        for module in sorted({mutant.module for mutant in mutants if "_kernels" not in mutant.module}):
            shutil.copy2(self.folder / module, self.folder / f"{module}.unchanged")
            lines: dict[int, list[int]] = {}
            for i, mutant in enumerate(mutants):
                if mutant.module == module:
                    lines.setdefault(mutant.line, []).append(i)
            probes = _Probed(lines)
            tree = probes.visit(ast.parse((self.folder / module).read_text(encoding="utf-8")))
            (self.folder / module).write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
            placed |= probes.placed
        return [i in placed for i in range(len(mutants))]

    def remove_probes(self, mutants: list[Mutant]) -> None:
        """Put the unchanged modules back."""
        for module in {mutant.module for mutant in mutants if "_kernels" not in mutant.module}:
            shutil.copy2(self.folder / f"{module}.unchanged", self.folder / module)

    def restore(self, mutant: Mutant) -> None:
        """Put the unchanged module back, with its time, on which the caches of Python and numba depend."""
        shutil.copy2(self.folder / "unchanged", self.folder / mutant.module)

    def first_failure(self) -> str:
        """Return the test that noticed."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^(?:FAILED|ERROR) (\S+(?: in \S+)?)", text, re.MULTILINE)
        return found.group(1) if found else ""

    def _test(
        self,
        tests: list[str],
        limit: float,
        compiled: Path,
        recorder: Recorder | None = None,
        answer: Path | None = None,
    ) -> None:
        """Run pytest and leave; only ever called in the child."""
        code = 70
        try:
            os.setpgid(0, 0)
            os.chdir(self.folder)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if limit:
                resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
            sys.dont_write_bytecode = True
            folders = {"NUMBA_CACHE_DIR": compiled, "TMPDIR": self.folder / "tmp", "PYTHONPATH": self.folder / "src"}
            for name, folder in folders.items():
                folder.mkdir(exist_ok=True)
                os.environ[name] = str(folder)
            tempfile.tempdir = None
            import numba.core.config

            numba.core.config.CACHE_DIR = str(compiled)
            for name in [name for name in sys.modules if name.split(".")[0] == "twofold"]:
                del sys.modules[name]
            sys.path.insert(0, str(self.folder / "src"))
            import pytest

            options = ["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
            options += ["--hypothesis-seed=0", "-W", "ignore:Module already imported"]  # it is: by the parent
            if recorder is None or answer is None:
                code = int(pytest.main([*options, *tests]))
            else:
                probe = __import__(PROBE)
                code = int(pytest.main([*options, *tests], plugins=[recorder]))
                found = {i: {t: recorder.seconds.get(t, 0.0) for t in hit if t} for i, hit in probe.reached.items()}
                answer.write_text(json.dumps({"reached": found, "seconds": recorder.seconds}), encoding="utf-8")
                code = 0 if code == 5 else code  # no test left in this file
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


class Runner:
    """Test mutants, one per tree at a time, and append what came of each to the results."""

    def __init__(self, settings: dict[str, object], folder: Path, workers: int) -> None:
        self.settings, self.folder = settings, folder
        self.trees = [Tree(folder / str(i)) for i in range(workers)]

    def reach(self, mutants: list[Mutant]) -> list[tuple[list[str], float]]:
        """Find the tests to run for each mutant, and their seconds; the tests of unchanged code are run for it."""
        tree, options = self.trees[0], shlex.split(self.settings["options"])
        has_probe = tree.place_probes(mutants)
        files = list(dict.fromkeys(file for m in mutants for file in self.settings["tests"][m.module]))
        answers = {}
        keys = [(mutant.line, *mutant.key) for mutant in mutants]
        for i, file in enumerate(files):
            kept = self.folder / f"reach-{hashed(file, (ROOT / file).read_text(encoding='utf-8'), *keys)[:24]}.json"
            if not kept.is_file():
                print(f"probing with {file} ({i + 1} of {len(files)})", flush=True)
                kept.write_text(json.dumps(tree.probe(mutants, options, file)), encoding="utf-8")
            answers[file] = json.loads(kept.read_text(encoding="utf-8"))
        tree.remove_probes(mutants)
        found = []
        for i, mutant in enumerate(mutants):
            tests: list[str] = []
            seconds = 0.0
            files = self.settings["tests"][mutant.module]
            if not has_probe[i]:
                files = sorted(files, key=lambda file: sum(answers[file]["seconds"].values()))
            for file in files:
                if has_probe[i]:
                    times = answers[file]["reached"].get(str(i), {})
                    tests += sorted(times, key=times.get)
                else:
                    times = answers[file]["seconds"]
                    tests.append(file)
                seconds += sum(times.values())
            found.append((tests, seconds))
        return found

    def run(self, mutants: list[Mutant], done: set[tuple[str, ...]]) -> None:
        """Test all but those that are done, in the order given."""
        left = [(m, tests) for m, tests in zip(mutants, self.reach(mutants), strict=True) if m.key not in done]
        waiting = left[::-1]
        options = shlex.split(self.settings["options"])
        busy: dict[int, tuple[Tree, Mutant, float]] = {}
        while waiting or busy:
            free = [tree for tree in self.trees if tree not in [b[0] for b in busy.values()]]
            if waiting and free:
                mutant, (tests, seconds) = waiting.pop()
                if not tests:
                    self.record(mutant, "survived", "", 0.0, len(waiting))  # no test reaches it
                    continue
                extra = COMPILING if "_kernels" in mutant.module else GRACE
                child = free[0].start(mutant, [*options, *tests], CPU * seconds + extra)
                busy[child] = (free[0], mutant, time.monotonic())
                continue
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                self.finish(*busy.pop(child), child, status, len(waiting) + len(busy))
                continue
            for child, (_, _, start) in busy.items():
                if time.monotonic() - start > WALL:
                    os.killpg(child, signal.SIGKILL)
            time.sleep(0.1)

    def finish(self, tree: Tree, mutant: Mutant, start: float, child: int, status: int, left: int) -> None:
        """Record what came of a mutant, and put the tree back."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests may have started
        code = os.waitstatus_to_exitcode(status)
        outcome, test = "killed", ""
        if code == 0:
            outcome = "survived"
        elif code in (-signal.SIGXCPU, -signal.SIGKILL):
            outcome = "timeout"
        elif code in (4, 5):
            raise SystemExit(f"pytest could not run the tests of {mutant.module}: {tree.log.read_text()[-2000:]}")
        else:
            test = tree.first_failure() or f"exit {code}"
        tree.restore(mutant)
        self.record(mutant, outcome, test, time.monotonic() - start, left)

    def record(self, mutant: Mutant, outcome: str, test: str, took: float, left: int) -> None:
        """Keep what came of a mutant."""
        place = {f.name: str(getattr(mutant, f.name)) for f in fields(Mutant) if f.name != "source"}
        row = judged(Row(**place, outcome=outcome, test=test, reason=""), self.settings)
        save([*(r for r in load() if r.key != row.key), row])
        print(
            f"{row.outcome:<10} {took:5.1f} s, {left} left  {mutant.module}:{mutant.line}  {mutant.before}", flush=True
        )
        if outcome not in NOTICED:
            print(f"{'became':>23}  {mutant.after}", flush=True)


# Results


def load() -> list[Row]:
    """Read the rows that are there."""
    if not RESULTS.is_file():
        return []
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return [Row(**row) for row in csv.DictReader(file)]


def save(rows: list[Row]) -> None:
    """Write the rows, sorted, whole or not at all."""
    new = RESULTS.with_suffix(".new")
    with new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row.module, int(row.line), row.after)):
            writer.writerow(asdict(row))
    new.replace(RESULTS)


def judged(row: Row, settings: dict[str, object]) -> Row:
    """Call a row equivalent if it survived and the settings give the reason."""
    for entry in settings.get("equivalent", []):
        is_it = (entry["module"], entry["before"], entry["after"]) == (row.module, row.before, row.after)
        if is_it and row.outcome == "survived":
            return replace(row, outcome="equivalent", reason=entry["reason"])
    return row


def summarise(rows: list[Row]) -> None:
    """Print the share noticed, with its exact interval, and name what was not."""
    rows = [row for row in rows if row.operator != "named"]
    by_module: dict[str, Counter[str]] = {}
    for row in rows:
        by_module.setdefault(row.module, Counter())[row.outcome] += 1
        if row.outcome == "survived":
            print(f"survived: {row.module}:{row.line} {row.definition}: {row.before}  ->  {row.after}")
    for module, counts in by_module.items():
        print(f"{module:<40} {dict(counts)}")
    noticed = sum(row.outcome in NOTICED for row in rows)
    equivalent = sum(row.outcome == "equivalent" for row in rows)
    for words, total in (("all drawn", len(rows)), ("without the equivalent", len(rows) - equivalent)):
        if total:
            low, high = clopper_pearson(noticed, total, delta=0.05, side="two")
            share = f"{noticed / total:.1%} (95 % interval {low:.1%} to {high:.1%})"
            print(f"noticed of {words}: {noticed} of {total}, {share}")


def page(rows: list[Row], notes: str) -> str:
    """Write the kept rows as a page: the share noticed, the equivalent changes with reasons, the survivors."""
    rows = [row for row in rows if row.operator != "named"]
    equivalent = [row for row in rows if row.outcome == "equivalent"]
    survivors = [row for row in rows if row.outcome == "survived"]
    noticed = sum(row.outcome in NOTICED for row in rows)
    modules = len({row.module for row in rows})
    parts = [
        "# Mutation testing",
        f"`python benchmarks/mutation.py --workers 2` changes one token of the code at a time and runs the quick tests that "
        f"reach the changed line. This page shows the result of {len(rows)} changes in {modules} modules. "
        "[How twofold is tested](../docs/testing.md) explains the method. `results/mutation.csv` has a row for each change, "
        "with the first test that noticed it.",
        "| changes counted | noticed | of | share | 95 % interval |\n|---|---|---|---|---|\n"
        + share_line("all but the equivalent ones", noticed, len(rows) - len(equivalent))
        + share_line("all, the equivalent ones as missed", noticed, len(rows)).rstrip(),
        "The intervals are exact (Clopper-Pearson).",
        "## Notes on this sample",
        notes.strip(),
        f"## Equivalent changes ({len(equivalent)})",
        "No test can notice these changes, because the program does the same as before.",
    ]
    parts += [change(row) + f"\n\n    {row.reason[0].upper()}{row.reason[1:]}." for row in equivalent]
    parts += [f"## Changes that no test notices yet ({len(survivors)})"]
    parts += [change(row) for row in survivors]
    return "\n\n".join(parts) + "\n"


def share_line(what: str, noticed: int, total: int) -> str:
    """Write a line of the table of shares."""
    low, high = clopper_pearson(noticed, total, delta=0.05, side="two")
    return f"| {what} | {noticed} | {total} | {100 * noticed / total:.1f} % | {100 * low:.1f} to {100 * high:.1f} % |\n"


def change(row: Row) -> str:
    """Write a change as a list item: where it is, and the line before and after it."""
    where = row.module.removeprefix("src/twofold/")
    place = f"`{where}`" + (f", `{row.definition}`" if row.definition else "")
    return f"- {place}:\n\n    ```diff\n    - {row.before}\n    + {row.after}\n    ```"


def main() -> None:
    """Draw, run what is missing, and summarise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another list of modules and tests")
    folder = Path(tempfile.gettempdir()) / "twofold-mutation"
    parser.add_argument("--work", type=Path, default=folder, help="folder of the private copies and compiled kernels")
    parser.add_argument("--only", default="", help="modules whose path holds this text")
    parser.add_argument("--again", action="store_true", help="run those that survived again")
    parser.add_argument("--list", action="store_true", help="print the draw")
    parser.add_argument("--summary", action="store_true", help="print the results that are there")
    parser.add_argument("--page", action="store_true", help="write results/mutation.md from the results that are there")
    options = parser.parse_args()
    settings = tomllib.loads(options.settings.read_text(encoding="utf-8"))
    if options.page:
        PAGE.write_text(page(load(), settings["notes"]), encoding="utf-8")
        return
    if options.summary:
        summarise(load())
        return
    patterns = options.only.split(",")
    settings["tests"] = {m: t for m, t in settings["tests"].items() if any(p in m for p in patterns)}
    settings["named"] = [e for e in settings.get("named", []) if any(p in e["module"] for p in patterns)]
    options.work.mkdir(parents=True, exist_ok=True)
    mutants = draw(settings, options.work)
    if options.list:
        for m in mutants:
            print(f"{m.module}:{m.line} [{m.operator}]\n    {m.before}\n    {m.after}")
        print(f"{len(mutants)} mutants of {len(settings['tests'])} modules")
        return
    keys = {mutant.key for mutant in mutants}
    lines = {mutant.key: str(mutant.line) for mutant in mutants}
    rows = [judged(replace(row, line=lines.get(row.key, row.line)), settings) for row in load()]
    save([row for row in rows if row.key in keys or row.module not in settings["tests"]])  # no longer drawn: dropped
    done = {row.key for row in load() if not (options.again and row.outcome == "survived")}
    import hypothesis  # noqa: F401  what every mutant would import: once, here
    import numba  # noqa: F401
    import pandas  # noqa: F401
    import pytest  # noqa: F401
    import scipy.special
    import scipy.stats  # noqa: F401
    import sklearn.metrics  # noqa: F401

    os.environ.pop("TWOFOLD_DATA", None)
    left = sum(mutant.key not in done for mutant in mutants)
    print(f"{len(mutants)} mutants of {len(settings['tests'])} modules, {left} to run", flush=True)
    Runner(settings, options.work.resolve(), options.workers).run(mutants, done)
    summarise(load())


if __name__ == "__main__":
    main()
