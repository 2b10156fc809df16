import pytest
import torch

from attnprobe.importance.leave_one_out.recurrent import Product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 127, 128, 129, 496, 500])
@pytest.mark.parametrize(("into", "out"), [(7, 5), (128, 512)])
def test_it_is_the_matrix_product(rows, into, out, dtype):
    generator = torch.Generator().manual_seed(rows)
    left, matrix = (torch.randn(shape, generator=generator, dtype=dtype) for shape in ((rows, into), (into, out)))
    product = Product(matrix)
    near = {"atol": 1e-12 if dtype == torch.float64 else 1e-4, "rtol": 0}
    expected = (left.double() @ matrix.double()).to(dtype)
    torch.testing.assert_close(product.of(left), expected, **near)


def test_many_rows_of_float32_go_the_way_of_the_convolution(monkeypatch):
    taken = []
    convolution = torch.nn.functional.conv2d
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda *a: taken.append(1) or convolution(*a))
    for dtype, expected in ((torch.float32, 1), (torch.float64, 1)):
        product = Product(torch.ones(4, 3, dtype=dtype))
        product.of(torch.ones(Product.FEWEST, 4, dtype=dtype))
        product.of(torch.ones(Product.FEWEST - 1, 4, dtype=dtype))
        assert len(taken) == expected
