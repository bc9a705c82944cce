"""Metrics of selective classification, failure and OOD detection, both jointly, and calibration, exact under ties.

Every metric takes truth first, confidence second, and settings by keyword. :func:`names` lists the registered metrics;
:func:`info` returns the direction, bounds, formula and reference of one.
"""

from twofold.metrics import (
    aurc_estimators,
    calibration,
    costs,
    detection,
    joint,
    open_set,
    operating_points,
    plugin_rule,
    prediction_sets,
    published_forms,
    rejection,
    risk_coverage,
    saturation,
    scaling,
    selective,
    streams,
)
from twofold.metrics._registry import (
    MetricInfo,
    coverage_note,
    info,
    is_published_form,
    names,
    published_form,
    register_metric,
)
from twofold.metrics.aurc_estimators import *
from twofold.metrics.calibration import *
from twofold.metrics.costs import *
from twofold.metrics.detection import *
from twofold.metrics.evaluate import Evaluation, evaluate, intervals
from twofold.metrics.joint import *
from twofold.metrics.open_set import *
from twofold.metrics.operating_points import *
from twofold.metrics.plugin_rule import *
from twofold.metrics.prediction_sets import *
from twofold.metrics.published_forms import *
from twofold.metrics.rejection import *
from twofold.metrics.risk_coverage import *
from twofold.metrics.saturation import *
from twofold.metrics.scaling import *
from twofold.metrics.selective import *
from twofold.metrics.streams import *

__all__ = [
    "Evaluation",
    "MetricInfo",
    "coverage_note",
    "evaluate",
    "info",
    "intervals",
    "is_published_form",
    "names",
    "published_form",
    "register_metric",
]
__all__ += aurc_estimators.__all__
__all__ += calibration.__all__
__all__ += costs.__all__
__all__ += detection.__all__
__all__ += joint.__all__
__all__ += open_set.__all__
__all__ += operating_points.__all__
__all__ += plugin_rule.__all__
__all__ += prediction_sets.__all__
__all__ += published_forms.__all__
__all__ += rejection.__all__
__all__ += risk_coverage.__all__
__all__ += saturation.__all__
__all__ += scaling.__all__
__all__ += selective.__all__
__all__ += streams.__all__
