"""Apply the 15 common corruptions at 5 levels of Hendrycks and Dietterich to whole batches of images.

Constants are those of CIFAR-10-C where the shorter side is below 224 pixels, and those of ImageNet-C from 224 on.
Each corruption works on all images at once; motion blur loops over directions, JPEG over images.

Random numbers come from one Philox counter stream for each (seed, corruption, level). Row i owns a fixed stretch of it,
so what happens to an image depends on its pixels and its global row alone: blocks of any size, in any order and in any
process give the same bytes. All draws are 16-bit numbers; noise is looked up in tables of 65,536 quantiles.

Where the published code and this module differ:

- frost: the original adds crops of five photographs. Here five textures of ice needles are made once from a fixed seed,
  with the mean colours, the spread and the 1/f spectrum of those photographs.
- glass_blur: the published loop is meant to swap pixels, but through NumPy views it only copies. So does this one.
- motion_blur and snow: ImageMagick's motion blur is written out here, taps below a weight of 1e-5 left out.
- elastic_transform: OpenCV rounds the sampling positions of the affine map to 1/32 pixel; here they are not rounded.
- Images need not be square, 32 or 224; what the original ties to these sizes follows each side.

The distance from the clean image grows with the level, except where the published constants trade one part of a
corruption for another: elastic_transform (affine map against displacement), frost (dimming against frost) and
glass_blur (copying against blur).

Values are truncated to 8 bits, not rounded, as in the published sets; a tiny amount is added first so that float error
does not lower a whole value.

Reference: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
ICLR 2019, arXiv:1903.12261.
"""

from twofold.nn.corruptions.severities import CIFAR, IMAGENET, LARGE, LEVELS, NAMES
from twofold.nn.corruptions.views import Corrupted, corrupt, corrupted, study

__all__ = ["CIFAR", "IMAGENET", "LARGE", "LEVELS", "NAMES", "Corrupted", "corrupt", "corrupted", "study"]
