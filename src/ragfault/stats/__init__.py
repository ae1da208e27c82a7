"""Statistics of samples of traces: intervals, differences, significance tests, power and agreement.

Every function states its assumptions. Values of traces that share a cluster (the turns of one conversation) are
not independent: give their clusters, and the interval widens. Every random step takes a seed. Undefined results are
an interval without end or a p value of 1, never NaN.
"""
