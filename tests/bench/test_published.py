"""Published numbers: counts of every table, values read from the papers by eye, identities, filters."""

import csv
import math
from importlib.resources import files

import numpy as np
import pytest

from twofold.bench import published as module
from twofold.bench.published import MISSING, UNITS, anchors, tables
from twofold.errors import InvalidInput, UnknownName
from twofold.scores.chain import scorer

# Printed rows and columns, counted in the papers. SURE+ paper, Tables 3 and 4: the DS-AURC block repeats the lines of
# the DS-F1 block, so it stands beside it: 9 scores x near, far x 2 metrics, and the accuracy. Tables 1, 7 and the
# leaderboards have a line with the accuracy. Stratified Table 2: two values per line; its two other columns name the
# training, which is in ``recipe``. FD-Shifts Table 7: seven data sets, four methods each.
SHAPES = {
    ("sure_plus", "1"): (20, 16),
    ("sure_plus", "2"): (9, 3),
    ("sure_plus", "3"): (13, 37),
    ("sure_plus", "4"): (13, 37),
    ("sure_plus", "5"): (24, 4),
    ("sure_plus", "6"): (3, 12),
    ("sure_plus", "7"): (18, 6),
    ("fd_shifts", "1"): (21, 23),
    ("fd_shifts", "2"): (12, 10),
    ("fd_shifts", "5"): (7, 6),
    ("fd_shifts", "6"): (7, 6),
    ("fd_shifts", "7"): (28, 5),
    ("fd_shifts", "8"): (21, 23),
    ("fd_shifts", "9"): (21, 23),
    ("fd_shifts", "10"): (21, 23),
    ("fd_shifts", "11"): (21, 23),
    ("fd_shifts", "13"): (21, 22),
    ("fd_shifts", "14"): (6, 2),
    ("fd_shifts", "15"): (5, 1),
    ("fd_shifts", "16"): (6, 2),
    ("stratified", "1"): (4, 3),
    ("stratified", "2"): (36, 2),
    ("stratified", "distances-cifar10"): (9, 4),
    ("stratified", "distances-supercifar100"): (9, 4),
    ("stratified", "distances-cifar100"): (9, 4),
    ("stratified", "distances-tinyimagenet"): (9, 4),
    ("unknown_detection", "6"): (11, 13),
    ("unknown_detection", "7"): (11, 11),
    ("unknown_detection", "readme"): (9, 3),
    ("aurc_estimators", "1"): (6, 8),
    ("openood", "leaderboard"): (29, 12),
    ("openood", "leaderboard-regnet"): (3, 2),
    ("openood", "leaderboard-full-spectrum"): (8, 2),
    ("uncertainty_baselines", "clinc-intent"): (1, 5),
}
# Printed numbers. Not the product of the shape where cells are empty or span: SURE+ Table 2 has six dashes; the lines
# with the accuracy hold one number per model; FD-Shifts Table 7 prints three columns once per data set; the stratified
# Table 1 lists eight sets per line; the leaderboard has dashes: 25 scores on ResNet-50 ImageNet-1K and so on.
CELLS = {
    ("sure_plus", "1"): 19 * 16 + 2,
    ("sure_plus", "2"): 9 * 3 - 6,
    ("sure_plus", "7"): 17 * 6 + 1,
    ("fd_shifts", "7"): 28 * 2 + 7 * 3,
    ("stratified", "1"): 4 * 8,
    ("openood", "leaderboard"): 2 * (28 + 28 + 27 + 27 + 17 + 16) + 6,
    ("openood", "leaderboard-full-spectrum"): 7 * 2 + 1,
}

SIRC = "sirc(s1='msp', s2='norm')"
SIRC_RES = "sirc(s1='entropy', s2='residual')"
R18, DEIT, DINO = {"model": "resnet18"}, {"model": "deit_base"}, {"model": "dinov3_vitl16"}
VIT = {"model": "vit_base16"}
SPOTS = {  # read from the printed tables
    ("sure_plus", "1"): [
        (67.42, R18 | {"score": "msp", "pair": "", "shift": "near", "metric": "f1"}),
        (444.53, R18 | {"score": "openmax", "pair": "", "shift": "far", "metric": "aurc_id"}),
        (330.49, R18 | {"pair": "odin", "shift": "far", "metric": "ds_aurc"}),
        (313.08, R18 | {"pair": "gram", "shift": "far", "metric": "ds_aurc"}),
        (77.30, DEIT | {"pair": "mds", "shift": "far", "metric": "ds_aurc"}),
        (67.67, R18 | {"pair": "knn", "shift": "near", "metric": "ds_f1"}),
        (354.96, R18 | {"score": SIRC, "shift": "far", "metric": "aurc_id"}),
        (98.10, DEIT | {"pair": "plugin_bb(ratio='residual')", "shift": "far", "metric": "ds_aurc"}),
        (81.79, DEIT | {"metric": "accuracy"}),
    ],
    ("sure_plus", "2"): [
        (31.5, {"score": "msp", "pair": "", "shift": "val+cifar10", "metric": "f1"}),
        (33.2, {"shift": "val+cifar10", "metric": "ds_f1"}),
        (26.0, {"shift": "mnist", "metric": "ds_f1_transferred"}),
        (0.371, {"pair": "react|energy", "shift": "mnist", "metric": "tau_id"}),
        (0.297, {"score": "react|energy", "shift": "mnist", "metric": "tau_ood"}),
        (27.2, {"score": "msp", "pair": "", "shift": "mnist", "metric": "f1"}),
    ],
    ("sure_plus", "3"): [
        (61.29, {"recipe": "mixup", "pair": "openmax", "shift": "far", "metric": "ds_f1"}),
        (69.43, {"recipe": "sure", "pair": "knn", "shift": "near", "metric": "ds_f1"}),
        (64.76, {"recipe": "sure_plus", "pair": "gram", "shift": "far", "metric": "ds_f1"}),
        (312.48, {"recipe": "cutmix", "pair": "knn", "shift": "far", "metric": "ds_aurc"}),
        (274.06, {"recipe": "sure_no_csc_crl", "pair": "vim", "shift": "far", "metric": "ds_aurc"}),
        (81.66, {"recipe": "sure_plus", "metric": "accuracy"}),
        (185.55, {"recipe": "sure_ema", "pair": "react|energy", "shift": "near", "metric": "ds_aurc"}),
    ],
    ("sure_plus", "4"): [
        (87.13, {"recipe": "sure_plus", "pair": "react|energy", "shift": "far", "metric": "ds_f1"}),
        (75.01, {"recipe": "regmixup", "pair": "knn", "shift": "near", "metric": "ds_f1"}),
        (31.56, {"recipe": "sure_plus", "pair": "react|energy", "shift": "far", "metric": "ds_aurc"}),
        (139.82, {"recipe": "pixmix", "pair": "mds", "shift": "near", "metric": "ds_aurc"}),
        (157.18, {"recipe": "sure_no_csc", "pair": "mds", "shift": "near", "metric": "ds_aurc"}),
        (87.94, {"recipe": "sure", "metric": "accuracy"}),
    ],
    ("sure_plus", "5"): [
        (80.82, R18 | {"recipe": "basic", "shift": "near", "metric": "auroc_ood", "spread": 0.05}),
        (76.49, R18 | {"recipe": "cutmix", "shift": "far", "metric": "auroc_ood", "spread": 1.87}),
        (39.44, R18 | {"recipe": "sure_plus", "metric": "aurc", "spread": 1.99}),
        (92.56, DINO | {"recipe": "sure_plus", "shift": "far", "metric": "auroc_ood", "spread": None}),
        (24.30, DINO | {"recipe": "sure", "metric": "aurc"}),
        (88.04, DINO | {"recipe": "sure_no_csc", "metric": "accuracy"}),
    ],
    ("sure_plus", "6"): [
        (47.25, {"score": "vim", "pair": "msp", "shift": "near", "metric": "ds_f1"}),
        (58.02, {"score": "react|energy", "pair": "react|energy", "shift": "far", "metric": "ds_f1"}),
        (59.94, {"score": "react|energy", "pair": "vim", "shift": "near", "metric": "ds_f1"}),
        (684.09, {"score": "vim", "pair": "msp", "shift": "far", "metric": "ds_aurc"}),
        (270.88, {"score": "react|energy", "pair": "vim", "shift": "near", "metric": "ds_aurc"}),
    ],
    ("sure_plus", "7"): [
        (79.31, {"score": "msp", "shift": "far", "metric": "auroc_ood", "spread": 0.99}),
        (92.29, {"score": "gram", "shift": "near", "metric": "fpr95_unsafe_ood", "spread": 0.19}),
        (53.12, {"score": "gradnorm", "shift": "far", "metric": "aupr_ood", "spread": 2.90}),
        (82.01, {"score": "klm", "shift": "far", "metric": "fpr95_unsafe_ood"}),
        (84.18, {"score": SIRC_RES, "shift": "near", "metric": "aupr_ood"}),
        (77.32, {"metric": "accuracy"}),
    ],
    ("fd_shifts", "1"): [
        (62.3, {"model": "resnet50", "score": "msp", "benchmark": "fd-iwildcam", "shift": "test"}),
        (376, {"model": "vgg13", "score": "gambler", "benchmark": "fd-supercifar100", "shift": "subclass"}),
        (270, {"model": "vgg13", "score": "mls", "benchmark": "fd-cifar100", "shift": "tinyimagenet_resize"}),
        (617, {"model": "vgg13", "score": "devries", "benchmark": "fd-cifar100", "shift": "svhn"}),
        (
            118,
            {
                "model": "svhn_cnn",
                "recipe": "gamblers",
                "score": "mc_msp",
                "shift": "held_out",
                "benchmark": "fd-svhn-openset",
            },
        ),
        (0.05, VIT | {"score": "mc_entropy", "benchmark": "fd-camelyon", "shift": "test"}),
        (360, VIT | {"score": "mds", "benchmark": "fd-iwildcam-openset", "shift": "held_out"}),
        (50.0, VIT | {"score": "mds", "benchmark": "fd-svhn", "shift": "tinyimagenet_resize"}),
    ],
    ("fd_shifts", "2"): [
        (47.30, {"model": "resnet50", "benchmark": "fd-iwildcam", "metric": "round_to_one_16bit"}),
        (17.29, {"model": "svhn_cnn", "metric": "round_to_one_32bit"}),
        (1.893, VIT | {"benchmark": "fd-breeds", "metric": "aurc_64bit"}),
        (85.85, VIT | {"benchmark": "fd-cifar10", "metric": "auroc_32bit"}),
        (97.30, VIT | {"benchmark": "fd-svhn", "metric": "accuracy"}),
        (5.475, VIT | {"benchmark": "fd-svhn", "metric": "aurc_64bit"}),
    ],
    ("fd_shifts", "5"): [
        (10, {"score": "mc_expected_entropy", "benchmark": "fd-iwildcam"}),
        (15, {"score": "mc_msp", "benchmark": "fd-iwildcam"}),
        (20, {"score": "mc_msp", "benchmark": "fd-cifar10"}),
        (2.2, {"score": "msp", "benchmark": "fd-camelyon"}),
        (12, {"score": "gambler", "benchmark": "fd-cifar100"}),
        (3, {"score": "mc(of='gambler')", "benchmark": "fd-breeds"}),
    ],
    ("fd_shifts", "6"): [
        (1, {"score": "confidnet", "benchmark": "fd-iwildcam"}),
        (0, {"score": "confidnet", "benchmark": "fd-breeds"}),
        (1, {"score": "gambler", "benchmark": "fd-breeds"}),
        (0, {"score": "devries", "benchmark": "fd-cifar10"}),
        (0, {"recipe": "basic", "score": "msp", "benchmark": "fd-cifar100"}),
        (1, {"recipe": "basic", "score": "entropy", "benchmark": "fd-cifar100"}),
    ],
    ("fd_shifts", "7"): [
        (0.03, {"score": "mds", "benchmark": "fd-svhn", "metric": "init_lr"}),
        (0.0003, {"score": "msp", "benchmark": "fd-cifar10", "metric": "init_lr"}),
        (512, {"benchmark": "fd-cifar100", "metric": "batch_size"}),
        (40000, {"benchmark": "fd-iwildcam", "metric": "steps"}),
        (1, {"score": "msp", "benchmark": "fd-supercifar100", "metric": "dropout"}),
        (0.01, {"score": "mcd", "benchmark": "fd-breeds", "metric": "init_lr"}),
    ],
    ("fd_shifts", "8"): [
        (76.2, {"model": "resnet50", "score": "msp", "benchmark": "fd-iwildcam", "shift": "test"}),
        (73.0, {"model": "resnet50", "score": "mc_mls", "benchmark": "fd-camelyon", "shift": "hospital2"}),
        (42.0, {"score": "gambler", "benchmark": "fd-supercifar100"}),
        (89.7, {"score": "devries", "benchmark": "fd-camelyon", "shift": "test"}),
        (59.4, VIT | {"score": "mc_mls", "benchmark": "fd-iwildcam", "shift": "cameras"}),
        (72.0, VIT | {"score": "mds", "benchmark": "fd-iwildcam", "shift": "cameras"}),
    ],
    ("fd_shifts", "9"): [
        (84.3, {"model": "vgg13", "score": "msp", "benchmark": "fd-cifar100", "shift": "tinyimagenet_resize"}),
        (81.4, {"model": "vgg13", "score": "entropy", "benchmark": "fd-cifar100", "shift": "svhn"}),
        (70.8, {"score": "confidnet", "benchmark": "fd-iwildcam", "shift": "test"}),
        (95.6, {"score": "confidnet", "benchmark": "fd-camelyon", "shift": "test"}),
        (99.6, VIT | {"score": "mc_mls", "benchmark": "fd-cifar10", "shift": "svhn"}),
        (57.6, VIT | {"score": "mds", "benchmark": "fd-supercifar100"}),
    ],
    ("fd_shifts", "10"): [
        (0.14, {"model": "resnet50", "score": "msp", "benchmark": "fd-iwildcam", "shift": "test"}),
        (0.57, {"model": "vgg13", "score": "msp", "benchmark": "fd-cifar10", "shift": "svhn"}),
        (0.79, {"score": "gambler", "benchmark": "fd-cifar100", "shift": "svhn"}),
        (0.04, {"score": "devries", "benchmark": "fd-cifar10", "shift": "tinyimagenet_resize"}),
        (0.39, VIT | {"score": "mc_mutual_information", "benchmark": "fd-camelyon", "shift": "hospital2"}),
        (0.10, VIT | {"score": "mds", "benchmark": "fd-svhn", "shift": "tinyimagenet_resize"}),
    ],
    ("fd_shifts", "11"): [
        (6, {"model": "resnet50", "score": "msp", "benchmark": "fd-iwildcam", "shift": "test"}),
        (11, {"model": "svhn_cnn", "score": "msp", "benchmark": "fd-svhn", "shift": "tinyimagenet_resize"}),
        (8, {"score": "gambler", "benchmark": "fd-cifar10", "shift": "corruption"}),
        (1, {"score": "devries", "benchmark": "fd-cifar10", "shift": "test"}),
        (9, VIT | {"score": "msp", "benchmark": "fd-cifar100", "shift": "tinyimagenet_resize"}),
        (2, VIT | {"score": "mds", "benchmark": "fd-svhn", "shift": "tinyimagenet_resize"}),
    ],
    ("fd_shifts", "13"): [
        (7, {"model": "resnet50", "score": "msp", "metric": "auroc_rank"}),
        (8, {"model": "resnet50", "score": "msp", "metric": "auroc_rank_original"}),
        (1, {"score": "gambler", "benchmark": "fd-iwildcam-openset", "metric": "auroc_rank_original"}),
        (11, {"score": "confidnet", "benchmark": "fd-cifar100", "shift": "cifar10", "metric": "auroc_rank_original"}),
        (12, {"score": "confidnet", "benchmark": "fd-svhn", "shift": "cifar100", "metric": "auroc_rank_original"}),
        (3, VIT | {"score": "mds", "benchmark": "fd-svhn", "shift": "tinyimagenet_resize", "metric": "auroc_rank"}),
    ],
    ("fd_shifts", "14"): [
        (4.94, {"model": "vgg13", "metric": "risk_at_coverage_1.00"}),
        (6.12, {"model": "vgg16", "metric": "risk_at_coverage_1.00"}),
        (2.69, {"model": "vgg13", "metric": "risk_at_coverage_0.95"}),
        (1.09, {"model": "vgg16", "metric": "risk_at_coverage_0.85"}),
        (0.52, {"model": "vgg16", "metric": "risk_at_coverage_0.75"}),
    ],
    ("fd_shifts", "15"): [
        (88.6, {"recipe": "baseline", "score": "msp"}),
        (94.0, {"recipe": "basic", "score": "msp"}),
        (94.3, {"recipe": "basic", "score": "mls"}),
        (96.0, {"recipe": "improved", "score": "msp"}),
        (97.1, {"recipe": "improved", "score": "mls"}),
    ],
    ("fd_shifts", "16"): [
        (97.99, {"benchmark": "fd-cifar10", "recipe": "basic", "score": "mds", "spread": 0.31}),
        (97.68, {"benchmark": "fd-cifar10", "recipe": "fort2021", "score": "msp", "spread": None}),
        (91.13, {"benchmark": "fd-cifar100", "recipe": "basic", "score": "mds", "spread": 7.86}),
        (92.50, {"benchmark": "fd-cifar100", "recipe": "basic_best", "score": "msp"}),
        (95.53, {"benchmark": "fd-cifar100", "recipe": "fort2021", "score": "mds"}),
    ],
    ("stratified", "1"): [  # 1 near, 2 mid, 3 far
        (1, {"benchmark": "stratified-cifar10", "shift": "cifar100"}),
        (2, {"benchmark": "stratified-supercifar100", "shift": "svhn"}),
        (3, {"benchmark": "stratified-cifar100", "shift": "places365"}),
        (1, {"benchmark": "stratified-tinyimagenet", "shift": "lsun_crop"}),
        (3, {"benchmark": "stratified-tinyimagenet", "shift": "svhn"}),
    ],
    ("stratified", "2"): [
        (3.9132, {"benchmark": "stratified-cifar10", "shift": "test", "score": "best", "recipe": "gamblers"}),
        (
            150.3665,
            {"benchmark": "stratified-cifar10", "shift": "lsun_crop", "score": "best_mc"},
        ),
        (230.2041, {"benchmark": "stratified-supercifar100", "shift": "lsun_resize", "score": "best_mc"}),
        (121.1945, {"benchmark": "stratified-cifar100", "shift": "textures", "score": "best_mc"}),
        (209.3178, {"benchmark": "stratified-tinyimagenet", "shift": "lsun_crop", "score": "best"}),
        (340.2405, {"benchmark": "stratified-tinyimagenet", "shift": "svhn", "score": "best_mc", "recipe": "devries"}),
    ],
    ("stratified", "distances-cifar10"): [
        (0.0028, {"shift": "test", "role": "iid", "metric": "frechet_distance"}),
        (0.7885, {"shift": "cifar100", "role": "near", "metric": "text_distance"}),
        (0.0015, {"shift": "isun", "role": "mid", "metric": "mmd_distance"}),
        (1.1471, {"shift": "places365", "role": "far", "metric": "centroid_distance"}),
        (1.0647, {"shift": "textures", "role": "far", "metric": "centroid_distance"}),
    ],
    ("stratified", "distances-supercifar100"): [
        (0.0748, {"shift": "test", "metric": "frechet_distance"}),
        (0.7511, {"shift": "cifar10", "role": "near", "metric": "centroid_distance"}),
        (0.0017, {"shift": "svhn", "role": "mid", "metric": "mmd_distance"}),
        (0.7696, {"shift": "lsun_crop", "metric": "text_distance"}),
        (0.5246, {"shift": "textures", "metric": "frechet_distance"}),
    ],
    ("stratified", "distances-cifar100"): [
        (0.6026, {"shift": "test", "metric": "centroid_distance"}),
        (0.1590, {"shift": "cifar10", "role": "near", "metric": "frechet_distance"}),
        (0.8436, {"shift": "tinyimagenet", "metric": "centroid_distance"}),
        (0.6222, {"shift": "svhn", "metric": "frechet_distance"}),
        (0.7752, {"shift": "places365", "metric": "text_distance"}),
    ],
    ("stratified", "distances-tinyimagenet"): [
        (0.2224, {"shift": "cifar100", "role": "near", "metric": "frechet_distance"}),
        (0.3220, {"shift": "cifar10", "role": "near", "metric": "frechet_distance"}),
        (0.7186, {"shift": "lsun_resize", "role": "near", "metric": "centroid_distance"}),
        (0.0014, {"shift": "textures", "role": "mid", "metric": "mmd_distance"}),
        (0.0025, {"shift": "svhn", "role": "far", "metric": "mmd_distance"}),
    ],
    ("unknown_detection", "6"): [
        (773.15, {"recipe": "basic", "score": "msp", "shift": "pooled", "metric": "aurc", "spread": 12.77}),
        (731.71, {"recipe": "deep_ensemble", "shift": "pooled", "metric": "aurc", "spread": None}),
        (68.53, {"recipe": "crl", "shift": "test", "metric": "aurc"}),
        (87.90, {"recipe": "crl", "shift": "textures", "metric": "fpr95_ood"}),
        (72.10, {"recipe": "basic", "score": "msp", "shift": "gaussian", "metric": "auroc_ood"}),
        (79.45, {"recipe": "deep_ensemble", "metric": "accuracy"}),
    ],
    ("unknown_detection", "7"): [
        (585.74, {"recipe": "basic", "score": "msp", "shift": "pooled", "metric": "aurc", "spread": 7.13}),
        (621.28, {"score": "openmax", "shift": "pooled", "metric": "aurc", "spread": 11.29}),
        (97.48, {"recipe": "energy_finetune", "shift": "food32", "metric": "fpr95_ood"}),
        (59.44, {"score": "react|energy", "shift": "caltech45", "metric": "fpr95_ood"}),
        (84.84, {"recipe": "oe", "shift": "places82", "metric": "auroc_ood", "spread": 0.28}),
        (77.97, {"recipe": "edl", "metric": "accuracy"}),
    ],
    ("unknown_detection", "readme"): [
        (735.50, {"recipe": "basic", "score": "msp", "metric": "aurc"}),
        (693.49, {"recipe": "deep_ensemble", "metric": "aurc"}),
        (697.67, {"recipe": "oe", "metric": "aurc"}),
        (91.72, {"recipe": "basic", "score": "msp", "metric": "fpr95_ood"}),
        (90.29, {"recipe": "deep_ensemble", "metric": "auroc_ood"}),
    ],
    ("aurc_estimators", "1"): [
        (4.967, {"model": "resnet18", "benchmark": "aurc-cifar10", "recipe": "basic", "spread": 0.038}),
        (6.532, {"model": "resnet18", "benchmark": "aurc-cifar100", "recipe": "aurc_finetune(estimator='empirical')"}),
        (10.586, {"model": "vgg16bn", "benchmark": "aurc-cifar100", "recipe": "aurc_finetune(estimator='sele')"}),
        (8.524, {"model": "vgg19bn", "benchmark": "aurc-cifar10", "recipe": "aurc_finetune(estimator='log')"}),
        (5.607, {"model": "wideresnet28x10", "benchmark": "aurc-cifar100", "recipe": "aurc_finetune(estimator='log')"}),
    ],
    ("openood", "leaderboard"): [
        (88.03, {"benchmark": "openood-cifar10", "score": "msp", "shift": "near"}),
        (86.98, {"benchmark": "openood-cifar100", "score": "nac", "shift": "far"}),
        (38.22, {"benchmark": "openood-imagenet200", "score": "rankfeat", "shift": "far"}),
        (95.74, {"model": "resnet50", "score": "ash(kind='b')|energy", "shift": "far"}),
        (39.28, {"model": "vit_b_16", "score": "gradnorm", "shift": "near"}),
        (84.20, {"benchmark": "openood-cifar10", "score": "mds", "shift": "near"}),
        (76.18, {"model": "resnet50", "metric": "accuracy"}),
    ],
    ("openood", "leaderboard-regnet"): [
        (84.87, {"score": "nnguide", "shift": "near"}),
        (97.17, {"score": "nnguide", "shift": "far"}),
        (79.83, {"score": "mds", "shift": "near"}),
        (84.92, {"score": "rmds", "shift": "near"}),
        (94.44, {"score": "rmds", "shift": "far"}),
    ],
    ("openood", "leaderboard-full-spectrum"): [
        (60.79, {"score": "msp", "shift": "near"}),
        (74.31, {"score": "gen", "shift": "far"}),
        (52.50, {"score": "vim", "shift": "near"}),
        (88.85, {"score": "scale|energy", "shift": "far"}),
        (54.35, {"metric": "accuracy"}),
    ],
    ("uncertainty_baselines", "clinc-intent"): [
        (96.5, {"metric": "accuracy"}),
        (0.942, {"metric": "auroc_ood", "score": "msp"}),
        (0.186, {"metric": "nll"}),
        (0.0218, {"metric": "ece"}),
        (0.853, {"metric": "aupr_unsafe_ood"}),
    ],
}


def cell(paper, table, **where):
    """The one printed number with these fields."""
    found = [a for a in anchors(paper, table) if all(getattr(a, k) == v for k, v in where.items())]
    assert len(found) == 1, (where, len(found))
    return found[0]


def test_shapes_are_those_of_the_papers():
    assert tables() == SHAPES


@pytest.mark.parametrize("key", SHAPES, ids="-".join)
def test_every_printed_number_is_there_once(key):
    rows = anchors(*key)
    assert len(rows) == CELLS.get(key, math.prod(SHAPES[key]))
    keys = {(a.benchmark, a.model, a.recipe, a.score, a.pair, a.shift, a.role, a.metric) for a in rows}
    assert len(keys) == len(rows)


@pytest.mark.parametrize("key", SHAPES, ids="-".join)
def test_values_read_from_the_papers(key):
    assert len(SPOTS[key]) >= 5
    for value, where in SPOTS[key]:
        assert cell(*key, **where).value == value, where


def test_shifts_are_sets_of_the_catalogue_or_averages():
    benchmark = pytest.importorskip("twofold.bench.catalogue")
    known = {a.benchmark for a in anchors()} & set(benchmark.names())
    assert len(known) == 20
    averages = {"near", "far", "test", "pooled", "corruption", "val+cifar10", ""}
    for name in known:
        sets = {s.name: s.role for s in benchmark.load(name).sets}
        foreign = {(a.shift, a.role) for a in anchors(benchmark=name) if a.shift not in averages} - set(sets.items())
        assert not foreign, name


def test_a_table_that_is_missing_is_named_and_absent():
    assert set(MISSING) == {("fd_shifts", "12")}
    assert not set(MISSING) & set(tables())


def test_files_hold_no_empty_values_and_only_known_units():
    names = {item.name for item in (files("twofold.bench") / "files" / "published").iterdir()}
    assert names == {f"{paper}_{table.replace('-', '_')}.csv" for paper, table in SHAPES}
    for name in names:
        text = (files("twofold.bench") / "files" / "published" / name).read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            assert None not in (*row, *row.values()), (name, row)
            assert row["value"]
            assert row["metric"]
            assert row["benchmark"]
            assert row["unit"] in UNITS
            assert (row["reliable"], bool(row["note"])) != ("no", False)
            assert all(v == v.strip() for v in row.values())


def test_every_score_is_registered_unless_the_note_says_otherwise():
    foreign = set()
    for a in anchors():
        for spec in filter(None, (a.score, a.pair)):
            if "no score of ours" in a.note:
                foreign.add(spec)
            else:
                assert scorer(spec).steps[-1].info.kind == "score"
    assert foreign == {"best", "best_mc", "mcd", "nac", "adascale_a", "adascale_l"}


def test_metrics_of_results_are_registered():
    from twofold import metrics

    other = {
        *("tau_id", "tau_ood", "tau_id_transferred", "tau_ood_transferred", "f1_transferred", "ds_f1_transferred"),
        *("aurc_rank", "auroc_rank", "auroc_rank_original", "group"),
        *("reward", "dropout", "init_lr", "weight_decay", "batch_size", "steps"),
        *("mmd_distance", "frechet_distance", "text_distance", "centroid_distance"),
    }
    for name in {a.metric for a in anchors()} - other:
        base = name
        if name.endswith("bit"):
            base = name.rpartition("_")[0]
        if name.startswith("risk_at_coverage_"):
            assert 0 < float(name.rpartition("_")[2]) <= 1
        elif base != "round_to_one":
            assert metrics.info(base).name == base


# what the sheets call unreliable


def test_unreliable_cells_are_those_named():
    assert not any(a.reliable for a in anchors("sure_plus", "6"))
    odd = [a for a in anchors("sure_plus", "3") if "ending in .78" in a.note]
    assert len(odd) == 24
    assert not any(a.reliable for a in odd)
    assert all(a.shift == "near" and a.metric == "ds_aurc" and round(a.value % 1, 2) == 0.78 for a in odd)
    assert not cell("sure_plus", "4", recipe="sure_ema", pair="knn", shift="near", metric="ds_f1").reliable
    assert not cell("sure_plus", "4", recipe="sure_no_csc", pair="mds", shift="near", metric="ds_aurc").reliable
    assert not cell("sure_plus", "3", recipe="sure_ema", pair="react|energy", shift="near", metric="ds_aurc").reliable
    assert not any(a.reliable for a in anchors("unknown_detection", "readme"))
    assert [(a.recipe, a.shift, a.metric) for a in anchors("unknown_detection", "6", reliable=False)] == [
        ("crl", "textures", "fpr95_ood")
    ]
    assert not any(a.reliable for a in anchors(benchmark="aurc-cifar10"))
    assert {a.score for a in anchors("openood", reliable=False)} == {"gram", "mds_layers"}


def test_floor_cells_are_the_f1_of_accepting_everything():
    # 2 acc N_ID / (2 N_ID + N_OOD), mean over the sets of a group, with the sizes of the SURE+ paper: 9,000 or 45,000
    # known test images; CIFAR-100 near: CIFAR-10 (10,000) and Tiny-ImageNet (6,526); ImageNet near: SSB-hard (49,000)
    # and NINCO (5,879), far: iNaturalist (10,000), textures (5,160) and OpenImage-O (15,869)
    def floor(accuracy, known, sizes):
        return 100 * np.mean([2 * accuracy * known / (2 * known + n) for n in sizes])

    cifar = floor(0.7732, 9000, (10000, 6526))
    imagenet = {"near": floor(0.8179, 45000, (49000, 5879)), "far": floor(0.8179, 45000, (10000, 5160, 15869))}
    cells = anchors("sure_plus", "1", reliable=False)
    assert len(cells) == 5
    for a in cells:
        assert a.value == pytest.approx(cifar if a.model == "resnet18" else imagenet[a.shift], abs=0.015)


# identities


def test_two_scores_are_never_worse_than_msp_on_reliable_rows():
    base = {}
    for a in anchors("sure_plus"):
        if a.table in "134" and a.pair == "msp":
            base[a.table, a.model, a.recipe, a.shift, a.metric] = a.value
    checked = 0
    for a in anchors("sure_plus", reliable=True):
        key = (a.table, a.model, a.recipe, a.shift, a.metric)
        if a.pair and key in base:
            better = a.value - base[key] if a.metric == "ds_f1" else base[key] - a.value
            assert better > -0.015, a  # two decimals
            checked += 1
    assert checked > 900


def test_double_metrics_of_table_1_beat_the_single_ones():
    singles = {(a.model, a.score, a.shift, a.metric): a for a in anchors("sure_plus", "1") if not a.pair}
    for a in anchors("sure_plus", "1", reliable=True):
        if a.pair:
            metric = {"ds_f1": "f1", "ds_aurc": "aurc_id"}[a.metric]
            single = singles[a.model, a.pair, a.shift, metric].value
            worst = single - 0.015 if metric == "f1" else single + 0.015
            assert a.value >= worst if metric == "f1" else a.value <= worst, a


def test_tables_of_sure_plus_repeat_each_other():
    # Basic of Table 3 and the first column of Table 6 are cells of Table 1; MSP of Table 5 is in Table 7
    first = {
        (a.pair, a.shift, a.metric): a.value for a in anchors("sure_plus", "1") if a.model == "resnet18" and a.pair
    }
    third = [a for a in anchors("sure_plus", "3") if a.recipe == "basic" and a.pair]
    sixth = [a for a in anchors("sure_plus", "6") if a.score == "msp"]
    assert len(third) == 36
    assert len(sixth) == 12
    for a in third + sixth:
        assert a.value == first[a.pair, a.shift, a.metric], a
    for shift in ("near", "far"):
        fifth = cell("sure_plus", "5", model="resnet18", recipe="basic", shift=shift, metric="auroc_ood")
        seventh = cell("sure_plus", "7", score="msp", shift=shift, metric="auroc_ood")
        assert (fifth.value, fifth.spread) == (seventh.value, seventh.spread)


def columns(table, metric):
    """Values of a table of FD-Shifts by column, CNN and ViT apart."""
    result = {}
    for a in anchors("fd_shifts", table):
        if a.metric == metric:
            column = result.setdefault((a.model.startswith("vit"), a.benchmark, a.shift), {})
            column[a.score, a.recipe] = a.value
    return result


def test_ranks_of_table_11_follow_from_table_1():
    # competition ranks of the truncated values; one tie of two printed values (88.8) was broken by digits not printed
    printed, ranks = columns("1", "aurc"), columns("11", "aurc_rank")
    assert len(printed) == len(ranks) == 2 * 23
    differ = []
    for key, column in ranks.items():
        for name, rank in column.items():
            mine = 1 + sum(other < printed[key][name] for other in printed[key].values())
            if mine != rank:
                differ.append((key, name, mine, rank))
    assert differ == [((False, "fd-cifar10", "corruption"), ("gambler", "gamblers"), 7, 8)]


def test_ranks_of_table_13_fit_table_9():
    # the proposed mode is that of Table 9, which prints one decimal: a rank lies between the two ways to break ties
    printed, ranks = columns("9", "auroc"), columns("13", "auroc_rank")
    assert len(ranks) == 2 * 11
    for key, column in ranks.items():
        values = printed[key].values()
        for name, rank in column.items():
            mine = printed[key][name]
            assert 1 + sum(v > mine for v in values) <= rank <= sum(v >= mine for v in values), (key, name)


def test_aurc_of_fd_shifts_lies_between_best_and_random():
    # best ranking e + (1 - e) ln(1 - e), random e, with the accuracy of Table 8; runs are averaged and digits cut
    accuracy = columns("8", "accuracy")
    for key, column in columns("1", "aurc").items():
        for name, value in column.items():
            error = 1 - accuracy[key][name] / 100
            best = 1000 * (error + (1 - error) * math.log(1 - error))
            assert 0.98 * best - 1.5 <= value <= 1000 * error + 5, (key, name)


def test_aurc_of_unknown_detection_lies_between_oracle_and_random():
    # q = known share of 33,640 (CIFAR) or 44,792 (ImageNet) samples; oracle 1 - q + q ln q
    for table, known, pool in (("6", 4000, 33640), ("7", 10000, 44792)):
        accuracy = {(a.recipe, a.score): a.rate for a in anchors("unknown_detection", table) if a.metric == "accuracy"}
        for a in anchors("unknown_detection", table):
            if a.metric == "aurc" and a.shift == "pooled":
                q = accuracy[a.recipe, a.score] * known / pool
                assert 1 - q + q * math.log(q) < a.rate < 1 - q


def test_groups_of_the_stratified_paper_agree_with_its_distance_tables():
    for a in anchors("stratified", "1"):
        source = a.benchmark.removeprefix("stratified-")
        row = cell("stratified", f"distances-{source}", shift=a.shift, metric="mmd_distance")
        assert row.role == a.role == {1: "near", 2: "mid", 3: "far"}[a.value]


# reading and filtering


def test_filters():
    everything = anchors()
    assert len(everything) == sum(CELLS.get(k, math.prod(s)) for k, s in SHAPES.items())
    yes, no = anchors(reliable=True), anchors(reliable=False)
    assert len(yes) + len(no) == len(everything)
    assert all(a.reliable for a in yes)
    some = anchors("openood", benchmark="openood-cifar10", reliable=True)
    assert {(a.paper, a.benchmark, a.reliable) for a in some} == {("openood", "openood-cifar10", True)}
    assert {a.paper for a in anchors(table="1")} == {"sure_plus", "fd_shifts", "stratified", "aurc_estimators"}
    everything.clear()
    assert anchors()  # a caller's list is its own


@pytest.mark.parametrize(
    ("where", "nearest"),
    [
        ({"paper": "sureplus"}, "sure_plus"),
        ({"benchmark": "openood-cifar11"}, "openood-cifar10"),
        ({"paper": "openood", "table": "leaderbord"}, "leaderboard"),
    ],
)
def test_unknown_names_suggest_the_nearest(where, nearest):
    with pytest.raises(UnknownName, match=nearest):
        anchors(**where)


def test_rates():
    assert cell("sure_plus", "7", score="msp", shift="near", metric="auroc_ood").rate == pytest.approx(0.8082)
    assert cell("fd_shifts", "15", recipe="basic", score="mls").rate == pytest.approx(0.943)
    assert cell("unknown_detection", "6", recipe="oe", shift="pooled", metric="aurc").rate == pytest.approx(0.73973)
    rank = cell("fd_shifts", "11", model="resnet50", score="msp", benchmark="fd-iwildcam", shift="test")
    assert (rank.unit, rank.rate) == ("rank", 6)


HEAD = "paper,table,benchmark,model,recipe,score,pair,shift,role,metric,value,spread,unit,reliable,note\n"
GOOD = "openood,leaderboard,openood-cifar10,resnet18,basic,msp,,near,near,auroc_ood,88.03,,percent,yes,"


def test_a_good_line_is_read():
    [row] = module._parse_table(HEAD + GOOD, "x.csv")
    assert (row.value, row.spread, row.reliable, row.note) == (88.03, None, True, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("88.03", "188.03"), "not a possible value"),
        (("88.03", "-1"), "not a possible value"),
        (("88.03", "nan"), "not a possible value"),
        (("88.03", ""), "must be numbers"),
        (("88.03", "80.1/90.2"), "must be numbers"),
        (("88.03,,percent", "1001,,x1000"), "not a possible value"),
        (("88.03,,percent", "0,,rank"), "not a possible value"),
        (("88.03,,percent", "1.5,,rank"), "not a possible value"),
        (("88.03,,percent", "inf,,1"), "not a possible value"),
        (("88.03,,percent", "inf,,count"), "not a possible value"),
        (("88.03,,", "88.03,-2,"), "spread"),
        (("percent", "percnt"), "percent"),
        (("yes", "maybe"), "yes or no"),
        (("yes", "no"), "reason"),
        (("leaderboard", "ladder"), "ladder"),
        (("auroc_ood", ""), "metric is empty"),
        (("openood-cifar10", ""), "benchmark is empty"),
        ((",yes,", ",yes"), "14 columns"),
    ],
)
def test_damaged_lines_are_errors_that_name_the_line(change, message):
    assert change[0] in GOOD
    with pytest.raises(InvalidInput, match=message) as error:
        module._parse_table(HEAD + GOOD + "\n" + GOOD.replace(*change), "x.csv")
    assert "x.csv, line 3" in str(error.value)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", HEAD.replace("note", "notes") + GOOD])
def test_a_wrong_head_is_an_error(text):
    with pytest.raises(InvalidInput, match=r"x\.csv: the first line must be paper,table"):
        module._parse_table(text, "x.csv")
