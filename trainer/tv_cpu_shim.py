"""Let a torchvision built against CUDA PyTorch import beside a CPU PyTorch.

Its compiled operators do not load there, and `import torchvision` then fails while it registers fake versions
of two of them. Declaring the two is enough for datasets and transforms; the operators stay unusable.
"""

import torch

_library = torch.library.Library("torchvision", "DEF")
_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
