"""Rows to measure."""

import torch

DTYPES = [torch.float32, torch.float64]


def distributions(*shape, seed=0, dtype=torch.float64, zeros=0.3):
    """Random rows that sum to 1, some of them with zeros."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(shape, generator=generator, dtype=dtype) ** 4 + 1e-9
    rows[..., 1:] *= torch.rand(*shape[:-1], shape[-1] - 1, generator=generator) > zeros
    return rows / rows.sum(-1, keepdim=True)


def ranked(*shape, seed=0, values=6):
    """Random rows with many ties."""
    return torch.randint(0, values, shape, generator=torch.Generator().manual_seed(seed)).double()
