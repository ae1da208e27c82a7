"""What a sample of traces says about the traffic it was drawn from: means, differences, tests, sequences.

Every function states what it assumes. Values of traces that share a cluster (the turns of one
conversation) are not independent; give their clusters, and the interval widens to say so.
"""

from ragfault.stats.distributions import t_quantile
from ragfault.stats.intervals import Interval, clustered_error, mean_interval, standard_error, wilson

__all__ = ["Interval", "clustered_error", "mean_interval", "standard_error", "t_quantile", "wilson"]
