"""Name the roles of data sets: what each set of a run or a benchmark is for.

==========  ============================================================
role        what the data set is for
==========  ============================================================
train       the data that the classifier was trained on; scores fit on it
val         held-out in-distribution data, to choose settings on
test        in-distribution test data
shift       test data of the same classes under another distribution
near        out-of-distribution test data close to the training data, such as
            classes held out from training
mid         out-of-distribution test data in between
far         out-of-distribution test data far from the training data
ood_val     out-of-distribution data to choose settings on, never to test on
==========  ============================================================
"""

from __future__ import annotations

FITTING = ("train", "val", "ood_val")
"""Roles that a score may learn from or be tuned on."""

ID_TEST = ("test", "shift")
"""Roles of test sets whose inputs belong to the classes of the model."""

OOD_TEST = ("near", "mid", "far")
"""Roles of test sets whose inputs belong to no class of the model."""

OOD = (*OOD_TEST, "ood_val")
"""Roles of a run whose inputs belong to no class of the model: labels are stored as -1."""

ROLES = ("train", "val", *ID_TEST, *OOD)
"""Every role that a data set of a run can have, in the order in which help and messages list them."""

RESULT_ROLES = ("iid", "shift", "corruption", *OOD_TEST)
"""Roles of the rows of results, from the in-distribution test set to the farthest shift."""
