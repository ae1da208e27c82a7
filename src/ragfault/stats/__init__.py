"""What a sample of traces says about the traffic it was drawn from: means, differences, tests, sequences.

Every function states what it assumes. Values of traces that share a cluster (the turns of one
conversation) are not independent; give their clusters, and the interval widens to say so. Every
random step takes a seed; what cannot be told is said so, by an interval without end or a p of 1,
and never by NaN.
"""

from ragfault.stats.agreement import Agreed, accuracy, cohen_kappa, krippendorff_alpha
from ragfault.stats.calibration import Bin, calibration_bins, calibration_error
from ragfault.stats.change import Change, change_point
from ragfault.stats.correction import Corrected, correct, rogan_gladen
from ragfault.stats.difference import (
    Difference,
    paired_difference,
    paired_differences,
    unpaired_difference,
    unpaired_differences,
)
from ragfault.stats.discrimination import Cut, Within, auroc, auroc_within, average_precision, best_cut
from ragfault.stats.distributions import t_quantile
from ragfault.stats.intervals import Interval, clustered_error, mean_interval, standard_error, wilson
from ragfault.stats.permutation import (
    Significance,
    label_permutation,
    label_permutations,
    mcnemar,
    sign_flip,
    sign_flips,
)
from ragfault.stats.power import detectable, power, required, required_steady, steady_power
from ragfault.stats.rectified import (
    LEAST_LABELS,
    Rectified,
    RectifiedDifference,
    Rest,
    rectified_difference,
    rectified_mean,
    rectified_unpaired,
)
from ragfault.stats.resampling import Estimate, bootstrap
from ragfault.stats.sequence import Band, confidence_sequence, difference_sequence
from ragfault.stats.testing import Equivalence, equivalence, holm

__all__ = [
    "LEAST_LABELS",
    "Agreed",
    "Band",
    "Bin",
    "Change",
    "Corrected",
    "Cut",
    "Difference",
    "Equivalence",
    "Estimate",
    "Interval",
    "Rectified",
    "RectifiedDifference",
    "Rest",
    "Significance",
    "Within",
    "accuracy",
    "auroc",
    "auroc_within",
    "average_precision",
    "best_cut",
    "bootstrap",
    "calibration_bins",
    "calibration_error",
    "change_point",
    "clustered_error",
    "cohen_kappa",
    "confidence_sequence",
    "correct",
    "detectable",
    "difference_sequence",
    "equivalence",
    "holm",
    "krippendorff_alpha",
    "label_permutation",
    "label_permutations",
    "mcnemar",
    "mean_interval",
    "paired_difference",
    "paired_differences",
    "power",
    "rectified_difference",
    "rectified_mean",
    "rectified_unpaired",
    "required",
    "required_steady",
    "rogan_gladen",
    "sign_flip",
    "sign_flips",
    "standard_error",
    "steady_power",
    "t_quantile",
    "unpaired_difference",
    "unpaired_differences",
    "wilson",
]
