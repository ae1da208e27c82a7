"""Statistics of samples of traces: intervals, differences, significance tests, power and agreement.

Every function states its assumptions. Values of traces that share a cluster (the turns of one conversation) are
not independent: give their clusters, and the interval widens. Every random step takes a seed. Undefined results are
an interval without end or a p value of 1, never NaN.
"""

from ragfault.stats.agreement import accuracy, cohen_kappa, krippendorff_alpha
from ragfault.stats.bootstrap import BootstrapEstimate, bootstrap_estimates
from ragfault.stats.classification import (
    CalibrationBin,
    auroc,
    auroc_within_groups,
    average_precision,
    calibration_bins,
    calibration_error,
    choose_threshold,
)
from ragfault.stats.differences import Difference, paired_difference, paired_differences, unpaired_differences
from ragfault.stats.distributions import t_quantile
from ragfault.stats.intervals import (
    CorrectedShare,
    Interval,
    correct_share,
    mean_interval,
    standard_error,
    wilson_interval,
)
from ragfault.stats.power import (
    compute_power,
    detectable_effect,
    equivalence_power,
    required_equivalence_pairs,
    required_pairs,
    typical_jump,
)
from ragfault.stats.ppi import (
    MIN_LABELS,
    PpiDifference,
    PpiMean,
    UnlabeledSums,
    ppi_mean,
    ppi_paired_difference,
    ppi_unpaired_difference,
)
from ragfault.stats.quantiles import (
    QuantileChange,
    QuantileInterval,
    RatioInterval,
    paired_ratio,
    quantile_changes,
    quantile_interval,
    ratio_interval,
)
from ragfault.stats.sequences import confidence_sequence, detect_change_point, detect_mean_shifts
from ragfault.stats.significance import (
    SignificanceTest,
    count_flips,
    equivalence_test,
    holm_adjust,
    mcnemar_test,
    sign_flip_test,
    sign_flip_tests,
)

__all__ = [
    "MIN_LABELS", "BootstrapEstimate", "CalibrationBin", "CorrectedShare", "Difference", "Interval", "PpiDifference",
    "PpiMean", "QuantileChange", "QuantileInterval", "RatioInterval", "SignificanceTest", "UnlabeledSums", "accuracy",
    "auroc", "auroc_within_groups", "average_precision", "bootstrap_estimates", "calibration_bins",
    "calibration_error", "choose_threshold", "cohen_kappa", "compute_power",
    "confidence_sequence", "correct_share", "count_flips", "detect_change_point", "detect_mean_shifts",
    "detectable_effect", "equivalence_power", "equivalence_test", "holm_adjust",
    "krippendorff_alpha", "mcnemar_test", "mean_interval",
    "paired_difference", "paired_differences", "paired_ratio", "ppi_mean", "ppi_paired_difference",
    "ppi_unpaired_difference", "quantile_changes", "quantile_interval", "ratio_interval", "required_equivalence_pairs",
    "required_pairs", "sign_flip_test", "sign_flip_tests", "standard_error", "t_quantile",
    "typical_jump", "unpaired_differences", "wilson_interval",
]  # fmt: skip
