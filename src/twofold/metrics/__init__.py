"""Every metric of the field, exact under ties; truth first, confidence second, settings by keyword.

``names()`` lists the registered metrics and ``info(name)`` tells direction, bounds, formula and reference.
"""

from twofold.metrics._registry import MetricInfo, info, names, register_metric
from twofold.metrics.calibration import (
    PlattScaling,
    TemperatureScaling,
    accuracy,
    balanced_accuracy,
    brier,
    ece,
    mce,
    nll,
    reliability_diagram,
    round_to_one,
)
from twofold.metrics.detection import (
    aupr,
    auroc,
    autc,
    average_precision,
    average_precision_unsafe,
    detection_error,
    fpr95,
    fpr95_unsafe,
    fpr_at_tpr,
)
from twofold.metrics.evaluate import Evaluation, evaluate
from twofold.metrics.joint import (
    DoubleCurve,
    DoublePoint,
    OperatingPoint,
    Surface,
    aurc_id,
    ccr_at_fpr,
    ds_aurc,
    ds_f1,
    ds_risk_coverage_curve,
    f1,
    f1_surface,
    oscr,
)
from twofold.metrics.selective import (
    ExpectedAURC,
    RiskCoverageCurve,
    achievable_aurc,
    augrc,
    aurc,
    aurc_standard_error,
    aurc_weight_bias,
    aurc_weight_mse,
    aurc_weights,
    balanced_augrc,
    balanced_aurc,
    coverage_at_risk,
    eaugrc,
    eaurc,
    expected_aurc,
    joint_augrc,
    joint_aurc,
    naurc,
    partial_aurc,
    risk_at_coverage,
    risk_coverage_curve,
)

__all__ = [name for name in dir() if not name.startswith("_")]
