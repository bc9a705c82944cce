r"""Monitor a gate in deployment: compare unlabelled verdicts with the rates that validation promised.

The alarm is a sequential test. With counts :math:`n_i` of accept, unsure and unknown after n inputs,

.. math:: e_n = \frac{\int \prod_i p_i^{n_i}\, d\pi(p)}{\max_{p \in P} \prod_i p_i^{n_i}}

with :math:`\pi` the Dirichlet(1/2, 1/2, 1/2) law and P the rates that validation leaves possible. If the true rates are
in P, :math:`e_n` stays below a martingale that starts at 1, so it ever reaches 2/a with a probability of at most a/2
(Ville); P is a box of exact (Clopper-Pearson) intervals that misses the true rates with a probability of at most a/2.
Together, a false alarm is raised in at most a share ``false_alarms`` = a of all deployments, however long they run and
however often one looks. That the thresholds were chosen on the same validation data is not accounted for; the slow
tests measure its effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twofold._files import read_regular, replacing
from twofold._json import decode_json, encode_json
from twofold.errors import InvalidInput
from twofold.gate.schema import VERDICTS, check_monitor, require

FORMAT, VERSION = "twofold-monitor", 2
LOG = 512  # entries at most; older ones are thinned


@dataclass(eq=False, repr=False)
class Monitor:
    """Count verdicts of live batches and raise an alarm when their rates have left what validation promised.

    Memory is constant. An alarm stays. Create a monitor with :meth:`twofold.gate.gate.Gate.monitor`.

    Parameters
    ----------
    low : tuple of three floats
        Lowest rates of accept, unsure and unknown that validation leaves possible.
    high : tuple of three floats
        Highest such rates.
    false_alarms : float
        Largest share of deployments with a false alarm, in (0, 1).
    counts : tuple of three ints, default=(0, 0, 0)
        Verdicts counted so far: accept, unsure and unknown.
    alarm : bool, default=False
        Whether an alarm was raised.
    log : list of dict, optional
        At most 512 entries with the keys n, accept, unsure, unknown (rates), log_e and alarm, thinned as it grows.
    stride : int, default=1
        Every how many updates one is logged; it doubles whenever the log is thinned.
    updates : int, default=0
        Number of batches counted.

    Notes
    -----
    The test is described in :mod:`twofold.gate.monitor`.

    Examples
    --------
    >>> monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
    >>> monitor.update(["accept"] * 90 + ["unsure"] * 5 + ["unknown"] * 5)
    False
    >>> monitor.update(["unknown"] * 60), monitor.n
    (True, 160)
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    false_alarms: float
    counts: tuple[int, ...] = (0, 0, 0)
    alarm: bool = False
    log: list[dict[str, Any]] = field(default_factory=list)
    stride: int = 1  # one of this many updates is logged
    updates: int = 0

    def __repr__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in zip(VERDICTS, self.counts, strict=True))
        return f"Monitor({counted}; {'alarm' if self.alarm else 'no alarm'})"

    @property
    def n(self) -> int:
        """Number of inputs counted."""
        return sum(self.counts)

    @property
    def rates(self) -> dict[str, float]:
        """Share of each verdict so far, by name; NaN before the first input."""
        return {name: c / self.n if self.n else math.nan for name, c in zip(VERDICTS, self.counts, strict=True)}

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value; an alarm is raised at ``log(2 / false_alarms)``."""
        return _log_mixture(self.counts) - _log_best(self.counts, self.low, self.high)

    def update(self, verdicts: Any) -> bool:
        """Count one batch, and return whether an alarm is or was raised.

        Parameters
        ----------
        verdicts : Decision or array-like of str
            What :meth:`twofold.gate.gate.Gate.decide` returned, or its verdicts. An empty batch changes nothing.

        Returns
        -------
        bool
            True once an alarm was raised, now or before.

        Raises
        ------
        InvalidInput
            If a verdict is not accept, unsure or unknown.

        Examples
        --------
        >>> monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
        >>> monitor.update(["accept", "unsure"]), monitor.rates
        (False, {'accept': 0.5, 'unsure': 0.5, 'unknown': 0.0})
        """
        given = np.asarray(getattr(verdicts, "verdict", verdicts))
        if given.size == 0:
            return self.alarm
        found = [int((given == name).sum()) for name in VERDICTS]
        if sum(found) != given.size:
            odd = next(x for x in given.ravel().tolist() if x not in VERDICTS)
            raise InvalidInput(f"verdicts must be {', '.join(VERDICTS)}, got {odd!r}; pass what Gate.decide returned")
        self.counts = tuple(a + b for a, b in zip(self.counts, found, strict=True))
        self._look()
        return self.alarm

    def merge(self, other: Monitor) -> Monitor:
        """Combine two monitors into one of both streams together; the order does not matter.

        Parameters
        ----------
        other : Monitor
            A monitor of the same gate, with the same OOD share and false-alarm rate.

        Returns
        -------
        Monitor
            A new monitor; the two stay as they are.

        Raises
        ------
        InvalidInput
            If ``other`` is not a monitor, or was created for other rates.

        Notes
        -----
        The e-value is that of all inputs counted as one stream, so looking at the merged monitor keeps the false-alarm
        rate as long as the decision to merge does not depend on what was seen. An alarm of either stays: k monitors
        that were each watched may together raise k times as many false alarms. Counts and e-value are exact; the log
        holds the lines of both, by their own n, thinned to 512.

        Examples
        --------
        >>> one = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01, counts=(9, 1, 0), updates=1)
        >>> one.merge(one).counts
        (18, 2, 0)
        """
        if not isinstance(other, Monitor):
            raise InvalidInput(f"merge takes a Monitor, got {type(other).__name__}")
        if (self.low, self.high, self.false_alarms) != (other.low, other.high, other.false_alarms):
            raise InvalidInput("monitors of different gates, shares or false-alarm rates cannot be merged")
        log = sorted(self.log + other.log, key=lambda line: (line["n"], *line.values()))
        both = Monitor(
            self.low,
            self.high,
            self.false_alarms,
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            self.alarm or other.alarm,
            log,
            max(self.stride, other.stride),
            self.updates + other.updates,
        )
        if both.n:
            both._look()
        return both

    def save(self, path: str | Path) -> None:
        """Write the state as JSON with a version and a checksum, atomically.

        Parameters
        ----------
        path : str or Path
            The file to write; an existing file is replaced.
        """
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        with replacing(Path(path)) as file:
            file.write(encode_json({"format": FORMAT, "version": VERSION, **fields}))

    @classmethod
    def load(cls, path: str | Path) -> Monitor:
        """Read a state that :meth:`save` wrote.

        Parameters
        ----------
        path : str or Path
            The file to read.

        Returns
        -------
        Monitor
            A monitor that resumes counting where the saved one stopped.

        Raises
        ------
        InvalidInput
            If the file is missing, damaged, of another version, without a checksum, or holds a state that no monitor
            can have.

        Examples
        --------
        >>> import tempfile
        >>> monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
        >>> _ = monitor.update(["accept"] * 9 + ["unsure"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor.save(f"{folder}/monitor.json")
        ...     Monitor.load(f"{folder}/monitor.json")
        Monitor(9 accept, 1 unsure, 0 unknown; no alarm)
        """
        again = "save the monitor again with Monitor.save"
        try:
            raw = read_regular(Path(path))
        except FileNotFoundError as error:
            raise InvalidInput(f"{path} does not exist; write it with Monitor.save") from error
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read ({error.strerror or error})") from error
        content = decode_json(
            raw, Path(path), kind="a saved monitor", form=FORMAT, version=VERSION, again=again, error=InvalidInput
        )
        try:
            check_monitor(content)
            monitor = cls(**{**content, **{name: tuple(content[name]) for name in ("low", "high", "counts")}})
            reached = monitor.n > 0 and monitor.log_e >= math.log(2.0 / monitor.false_alarms)
            require(monitor.alarm or not reached, "alarm must be true at this e-value")
        except (ValueError, ArithmeticError) as error:
            raise InvalidInput(f"{path} holds no state of a monitor ({error}); {again}") from error
        return monitor

    def _look(self) -> None:
        self.updates += 1
        now = self.log_e
        fresh = now >= math.log(2.0 / self.false_alarms) and not self.alarm
        self.alarm = self.alarm or fresh
        if fresh or self.updates % self.stride == 0:
            self.log.append({"n": self.n, **self.rates, "log_e": now, "alarm": self.alarm})
        while len(self.log) > LOG:
            self.log = self.log[1::2]
            self.stride *= 2


def _log_mixture(counts: tuple[int, ...]) -> float:
    """Compute the log-likelihood of a sequence of verdicts under Dirichlet(1/2, ...)."""
    k = len(counts)
    start = math.lgamma(k / 2) - math.lgamma(sum(counts) + k / 2)
    return start + sum(math.lgamma(c + 0.5) - math.lgamma(0.5) for c in counts)


def _log_best(counts: tuple[int, ...], low: tuple[float, ...], high: tuple[float, ...]) -> float:
    """Compute the largest log-likelihood of a sequence of verdicts over rates in a box: rates c t, clipped to the box.

    Their sum grows with t, piecewise linearly between the knots where a rate leaves or meets a side of the box; t is
    where the sum is 1. If the sum stays below 1, verdicts that never occurred take the rest.
    """
    sides = list(zip(counts, low, high, strict=True))

    def total(t: float) -> float:
        return sum(min(max(c * t, a), b) for c, a, b in sides)

    knots = sorted(bound / c for c, a, b in sides if c for bound in (a, b))
    t = 0.0
    for knot in knots:
        below, above = total(t), total(knot)
        if above >= 1.0:
            t += (knot - t) * max(1.0 - below, 0.0) / (above - below) if above > below else 0.0
            break
        t = knot
    rates = [min(max(c * t, a), b) for c, a, b in sides]
    if any(c and not p for c, p in zip(counts, rates, strict=True)):
        return -1e300  # an impossible verdict: the e-value is unbounded, yet must be a number that JSON can hold
    return sum(c * math.log(p) for c, p in zip(counts, rates, strict=True) if c)
