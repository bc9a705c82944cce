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
from typing import TYPE_CHECKING

import numpy as np

from twofold._checks import ArrayLike, whole
from twofold._files import read_regular, replacing
from twofold._json import decode_json, encode_json
from twofold._notebook import NotebookTable, card
from twofold.errors import InvalidInput
from twofold.gate.schema import LOG_LINES, VERDICTS, LogLine, parse_monitor, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.gate.gate import Decision
    from twofold.plot import MonitorDisplay
    from twofold.plot.themes import ThemeName

FORMAT, VERSION = "twofold-monitor", 2


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
    log: list[LogLine] = field(default_factory=list)
    stride: int = 1  # one of this many updates is logged
    updates: int = 0

    def __repr__(self) -> str:
        accepted, unsure, unknown = self.counts
        state = "alarm" if self.alarm else "no alarm"
        return f"Monitor({accepted} accept, {unsure} unsure, {unknown} unknown; {state})"

    def _repr_html_(self) -> str:
        rows = []
        for name, count, rate, low, high in zip(
            VERDICTS, self.counts, self.rates.values(), self.low, self.high, strict=True
        ):
            rows.append((name, count, f"{rate:.4f}", f"{low:.4f} to {high:.4f}"))
        limit = math.log(2.0 / self.false_alarms)
        facts = {
            "alarm": "yes" if self.alarm else "no",
            "log e-value": f"{self.log_e:.3f}, alarm at {limit:.3f}",
        }
        columns = ("verdict", "inputs", "rate", "promised")
        return card(f"Monitor of {self.n:,} inputs", facts, NotebookTable(columns, rows))

    @property
    def n(self) -> int:
        """Number of inputs counted."""
        return sum(self.counts)

    @property
    def rates(self) -> dict[str, float]:
        """Share of each verdict so far, by name; NaN before the first input."""
        n = self.n
        if n == 0:
            return dict.fromkeys(VERDICTS, math.nan)
        return {name: count / n for name, count in zip(VERDICTS, self.counts, strict=True)}

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value; an alarm is raised at ``log(2 / false_alarms)``."""
        return _log_mixture(self.counts) - _log_best(self.counts, self.low, self.high)

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> MonitorDisplay:
        """Draw the rates of verdicts and the alarm statistic over the inputs seen.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        MonitorDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import MonitorDisplay

        return MonitorDisplay.from_monitor(self).plot(ax, theme=theme)

    def update(self, verdicts: Decision | ArrayLike) -> bool:
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
        batch = np.asarray(getattr(verdicts, "verdict", verdicts))
        if batch.size == 0:
            return self.alarm
        counts = tuple(int((batch == name).sum()) for name in VERDICTS)
        if sum(counts) != batch.size:
            odd = next(value for value in batch.ravel().tolist() if value not in VERDICTS)
            raise InvalidInput(f"verdicts must be {', '.join(VERDICTS)}, got {odd!r}; pass what Gate.decide returned")
        return self.update_counts(*counts)

    def update_counts(self, accept: int, unsure: int, unknown: int) -> bool:
        """Count one batch of which only the numbers of verdicts are known, and return whether an alarm was raised.

        Parameters
        ----------
        accept, unsure, unknown : int
            Number of each verdict. A batch without any changes nothing.

        Returns
        -------
        bool
            True once an alarm was raised, now or before.

        Raises
        ------
        InvalidInput
            If a number is negative or not whole.

        Examples
        --------
        >>> monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
        >>> monitor.update_counts(90, 5, 5), monitor.n
        (False, 100)
        """
        batch = (accept, unsure, unknown)
        for name, count in zip(VERDICTS, batch, strict=True):
            whole(count, name, 0)
        if not any(batch):
            return self.alarm
        self.counts = _add_counts(self.counts, batch)
        self._test_now()
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
            _add_counts(self.counts, other.counts),
            self.alarm or other.alarm,
            log,
            max(self.stride, other.stride),
            self.updates + other.updates,
        )
        if both.n:
            both._test_now()
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
            monitor = cls(**vars(parse_monitor(content)))
            must_alarm = monitor.n > 0 and monitor.log_e >= math.log(2.0 / monitor.false_alarms)
            require(monitor.alarm or not must_alarm, "alarm must be true at this e-value")
        except (ValueError, ArithmeticError) as error:
            raise InvalidInput(f"{path} does not hold the state of a monitor ({error}); {again}") from error
        return monitor

    def _test_now(self) -> None:
        """Compare the e-value with its limit, and log it."""
        self.updates += 1
        log_e = self.log_e
        is_new_alarm = log_e >= math.log(2.0 / self.false_alarms) and not self.alarm
        if is_new_alarm:
            self.alarm = True
        if is_new_alarm or self.updates % self.stride == 0:
            rates = self.rates
            self.log.append(
                LogLine(
                    n=self.n,
                    accept=rates["accept"],
                    unsure=rates["unsure"],
                    unknown=rates["unknown"],
                    log_e=log_e,
                    alarm=self.alarm,
                )
            )
        while len(self.log) > LOG_LINES:
            self.log = self.log[1::2]
            self.stride *= 2


def _add_counts(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip(some, others, strict=True))


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

    def rates(t: float) -> list[float]:
        return [min(max(count * t, lowest), highest) for count, lowest, highest in sides]

    knots = []
    for count, lowest, highest in sides:
        if count:
            knots += [lowest / count, highest / count]
    t = 0.0
    for knot in sorted(knots):
        below, above = sum(rates(t)), sum(rates(knot))
        if above >= 1.0:
            if above > below:
                t += (knot - t) * max(1.0 - below, 0.0) / (above - below)
            break
        t = knot
    log_likelihood = 0.0
    for count, rate in zip(counts, rates(t), strict=True):
        if count and not rate:
            return -1e300  # an impossible verdict: the e-value is unbounded, yet must be a number that JSON can hold
        if count:
            log_likelihood += count * math.log(rate)
    return log_likelihood
