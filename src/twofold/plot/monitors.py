"""A gate in deployment: rates of verdicts and the statistic of the alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twofold.bench.text import count
from twofold.gate.monitor import Monitor
from twofold.gate.schema import VERDICTS, LogLine
from twofold.plot.display import Display
from twofold.plot.themes import Theme, dash_of
from twofold.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES = (2, 1, 0)  # colours of accept, unsure and unknown
LOWEST = -50.0  # of the drawn statistic; below, nothing is to be seen


@dataclass(eq=False)
class MonitorDisplay(Display):
    """Draw the rates of verdicts over the inputs seen, and the alarm statistic with its limit below.

    Bands are the rates that validation leaves possible. An alarm is raised where the statistic reaches its limit.

    Parameters
    ----------
    log : sequence of dict
        Lines with the keys n, accept, unsure, unknown, log_e and alarm, as in :attr:`twofold.gate.Monitor.log`.
    low, high : sequence of three floats
        Lowest and highest rates of accept, unsure and unknown that validation leaves possible.
    false_alarms : float
        Largest share of deployments with a false alarm.

    Examples
    --------
    >>> monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
    >>> _ = monitor.update(["accept"] * 90 + ["unsure"] * 5 + ["unknown"] * 5)
    >>> MonitorDisplay.from_monitor(monitor).alt_text
    'Verdicts of 100 inputs: accept 90.0 %, unsure 5.0 %, unknown 5.0 %; no alarm.'
    """

    log: Sequence[LogLine]
    low: Sequence[float]
    high: Sequence[float]
    false_alarms: float

    @classmethod
    def from_monitor(cls, monitor: Monitor) -> MonitorDisplay:
        """Draw the log of a monitor.

        Parameters
        ----------
        monitor : Monitor
            What :meth:`twofold.Gate.monitor` returns.

        Returns
        -------
        MonitorDisplay
            The display.
        """
        return cls(list(monitor.log), monitor.low, monitor.high, monitor.false_alarms)

    @property
    def limit(self) -> float:
        """Value of the statistic at which an alarm is raised.

        Returns
        -------
        float
            The logarithm of 2 / ``false_alarms``.
        """
        return math.log(2.0 / self.false_alarms)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Number of inputs, last rates, and whether there is an alarm.
        """
        if not self.log:
            return "A monitor that has seen no input."
        last = self.log[-1]
        shares = last["accept"], last["unsure"], last["unknown"]
        rates = ", ".join(f"{name} {100 * share:.1f} %" for name, share in zip(VERDICTS, shares, strict=True))
        state = "alarm" if last["alarm"] else "no alarm"
        return f"Verdicts of {count(last['n'], 'input')}: {rates}; {state}."

    @property
    def _size(self) -> tuple[float, float]:
        return 4.2, 3.6

    def _draw(self, ax: Axes, theme: Theme) -> None:
        ax.axis("off")
        rates = ax.inset_axes((0, 0.46, 1, 0.54))
        statistic = ax.inset_axes((0, 0, 1, 0.36), sharex=rates)
        n = np.array([line["n"] for line in self.log], dtype=np.float64)
        self._draw_rates(rates, theme, n)
        self._draw_statistic(statistic, theme, n)
        rates.tick_params(labelbottom=False)

    def _draw_rates(self, ax: Axes, theme: Theme, n: Array) -> None:
        series = {
            "accept": [line["accept"] for line in self.log],
            "unsure": [line["unsure"] for line in self.log],
            "unknown": [line["unknown"] for line in self.log],
        }
        for place, (name, values), low, high in zip(PLACES, series.items(), self.low, self.high, strict=True):
            colour = theme.colours[place]
            ax.axhspan(low, high, color=colour, alpha=0.13, linewidth=0)
            ax.plot(n, values, color=colour, linestyle=dash_of(place), linewidth=1.4, label=name)
        ax.set_ylim(-0.02, 1.02)
        ax.set_ylabel("share of verdicts")
        ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), frameon=False, fontsize=8, borderaxespad=0)

    def _draw_statistic(self, ax: Axes, theme: Theme, n: Array) -> None:
        values = np.clip([line["log_e"] for line in self.log], LOWEST, 4 * self.limit)
        ax.plot(n, values, color=theme.text, linewidth=1.4, label="log e-value")
        ax.axhline(self.limit, color=theme.colours[1], linestyle=dash_of(1), linewidth=1.2, label="limit")
        alarms = [line["n"] for line in self.log if line["alarm"]]
        if alarms:
            ax.axvline(alarms[0], color=theme.colours[1], linewidth=1.0, label="alarm")
        ax.set_xlabel("inputs seen")
        ax.set_ylabel("alarm statistic")
        ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), frameon=False, fontsize=8, borderaxespad=0)
