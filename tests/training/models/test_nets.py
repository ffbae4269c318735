"""The nets themselves: shapes, parameter counts, initialisation."""

import torch
from torch import nn

from annealtune.training.models.nets import MLP, VGG16, ResNet34


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_vgg16_for_cifar10_has_14_78_million_parameters() -> None:
    # Convolutions, 9 weights for each pair of channels:
    #   9 x (3*64 + 64*64 + 64*128 + 128*128 + 128*256 + 2 * 256*256 + 256*512 + 5 * 512*512)
    #   = 9 x (192 + 4,096 + 8,192 + 16,384 + 32,768 + 131,072 + 131,072 + 1,310,720)
    #   = 9 x 1,634,496 = 14,710,464
    # Output channels: 2*64 + 2*128 + 3*256 + 6*512 = 4,224, each with one bias of its convolution,
    #   one scale and one shift of BatchNorm: 12,672
    # Linear layers: 512*100 + 100 = 51,300 and 100*10 + 10 = 1,010
    assert parameters(VGG16(channels=3, classes=10)) == 14_710_464 + 12_672 + 51_300 + 1_010
    assert parameters(VGG16(channels=3, classes=10)) == 14_775_446


def test_resnet34_for_cifar10_has_21_28_million_parameters() -> None:
    # No convolution has a bias; BatchNorm has two parameters a channel.
    # The stem has 9 * 3*64 + 2*64 = 1,856
    # Stage 64 has 3 blocks of 2 * 9 * 64*64 + 2 * 2*64 = 73,984: 221,952
    # Stages that double the width from n to m = 2n: a first block of
    #   9*n*m + 9*m*m + n*m (its 1x1 shortcut) + 3 * 2*m, then blocks of 2 * 9*m*m + 2 * 2*m:
    #   128:   230,144 + 3 *   295,424 =  1,116,416
    #   256:   919,040 + 5 * 1,180,672 =  6,822,400
    #   512: 3,673,088 + 2 * 4,720,640 = 13,114,368
    # Linear layer: 512*10 + 10 = 5,130
    total = 1_856 + 221_952 + 1_116_416 + 6_822_400 + 13_114_368 + 5_130
    assert parameters(ResNet34(channels=3, classes=10)) == total == 21_282_122


def test_mlp_for_digits_has_the_parameters_of_its_three_layers() -> None:
    net = MLP(input_shape=(1, 8, 8), output_shape=(10,))
    assert parameters(net) == (64 * 128 + 128) + (128 * 128 + 128) + (128 * 10 + 10)


def test_resnet_keeps_the_image_in_the_stem_and_halves_it_three_times() -> None:
    net = ResNet34(channels=3, classes=10, divisor=64).eval()
    features = net.stem(torch.zeros(1, 3, 32, 32))
    assert features.shape[2:] == (32, 32)
    assert net.stages(features).shape[2:] == (4, 4)


def test_dividing_the_widths_keeps_the_hidden_layer_of_vgg() -> None:
    net = VGG16(channels=3, classes=10, divisor=8)
    assert [m.out_features for m in net.modules() if isinstance(m, nn.Linear)] == [100, 10]
    assert [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)][-1] == 64
