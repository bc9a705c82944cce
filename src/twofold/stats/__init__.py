"""Bootstrap intervals, rank tests over tables of results, and risk bounds with guarantees.

Functions take metrics as arguments and never import them.
"""

from twofold.stats.bootstrap import Interval, bootstrap, draws
from twofold.stats.bounds import Selection, clopper_pearson, hoeffding_bentkus, hoeffding_bentkus_p, sgr
from twofold.stats.cliques import Cliques, cliques
from twofold.stats.exact import required_blocks
from twofold.stats.rank_tests import Friedman, Pairwise, conover_holm, conover_t, friedman, holm, rank_z, wilcoxon

__all__ = [
    "Cliques",
    "Friedman",
    "Interval",
    "Pairwise",
    "Selection",
    "bootstrap",
    "cliques",
    "clopper_pearson",
    "conover_holm",
    "conover_t",
    "draws",
    "friedman",
    "hoeffding_bentkus",
    "hoeffding_bentkus_p",
    "holm",
    "rank_z",
    "required_blocks",
    "sgr",
    "wilcoxon",
]
