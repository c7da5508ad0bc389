"""Muon (Jordan et al., 2024) with the update scale of Moonlight (Liu et al., 2025), AdamW for everything not a hidden matrix."""

import torch


def orthogonalise(g):
    """Newton-Schulz iteration of the fifth order on a batch [n, rows, cols]."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.to(torch.bfloat16 if g.is_cuda else torch.float32)
    x = x.transpose(-1, -2) if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.transpose(-1, -2) if tall else x


class Muon:
    """Matrices of one shape are stepped together; a parameter [experts, rows, cols] is that many matrices."""

    def __init__(self, params, weight_decay, momentum=0.95):
        self.weight_decay, self.momentum = weight_decay, momentum
        shapes = {}
        for p in params:
            shapes.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.groups = [
            (ps, torch.zeros(sum(p.numel() for p in ps) // (m * n), m, n, device=ps[0].device)) for (m, n), ps in shapes.items()
        ]

    @torch.no_grad()
    def step(self, rate):
        for params, momentum in self.groups:
            m, n = momentum.shape[-2:]
            grad = torch.cat([p.grad.reshape(-1, m, n) for p in params])
            momentum.lerp_(grad, 1 - self.momentum)
            update = orthogonalise(grad.lerp(momentum, self.momentum)).to(momentum.dtype) * (-rate * 0.2 * max(m, n) ** 0.5)
            pieces = update.split([p.numel() // (m * n) for p in params])
            torch._foreach_mul_(params, 1 - rate * self.weight_decay)
            torch._foreach_add_(params, [u.reshape(p.shape) for u, p in zip(pieces, params)])


class Optimizer:
    """matrices by Muon, `decayed` and `plain` parameters by AdamW."""

    def __init__(self, matrices, decayed, plain, settings):
        self.settings = settings
        self.muon = Muon(matrices, settings.weight_decay)
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        fused = {"fused": True} if matrices[0].is_cuda else {}
        self.adam = torch.optim.AdamW(groups, lr=settings.adam_rate, betas=(0.9, 0.95), **fused)
        self.params = [*matrices, *decayed, *plain]

    def step(self, step, steps):
        s = self.settings
        factor = min(1.0, (step + 1) / s.warmup_steps)
        done = step / steps
        if done > s.decay_from:
            factor = min(factor, (1 - done) / (1 - s.decay_from))
        for group in self.adam.param_groups:
            group["lr"] = s.adam_rate * factor
        self.adam.step()
        self.muon.step(s.muon_rate * factor)
        for p in self.params:
            p.grad = None
