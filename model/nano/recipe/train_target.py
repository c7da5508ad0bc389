"""Trains the target with the INT4 rounding of its routed experts in the loop."""

import json
import math
import time

import torch
import torch.nn.functional as F

import config
import data
import export
from muon import Optimizer
from target import Target


def compiled(function, device):
    return torch.compile(function, dynamic=False) if device.type == "cuda" else function


def compile_layers(model, device):
    """One graph per kind of layer: it compiles once and serves every layer of that kind."""
    if device.type == "cuda":
        for layer in model.layers:
            layer.compile(dynamic=False)


def head_loss(model, x, targets):
    return F.cross_entropy(model.head(x).float().flatten(0, 1), targets.flatten())


def make_optimizer(model, settings):
    matrices, plain = [], []
    for name, p in model.named_parameters():
        matrix = p.dim() >= 2 and not name.endswith("mlp.gate") and name not in ("embed_tokens", "lm_head")
        (matrices if matrix else plain).append(p)
    decayed = [model.lm_head]
    plain = [p for p in plain if p is not model.lm_head]
    return Optimizer(matrices, decayed, plain, settings)


@torch.no_grad()
def heldout_loss(model, loss, tokens, row_tokens, dtype, rows=16):
    """Mean nats a token over the whole stream, in windows that each start with a begin token."""
    model.eval()
    count = len(tokens) // (row_tokens * rows) * rows
    targets = tokens[: count * row_tokens].view(count, row_tokens)
    losses = [loss(model, model(data.with_begin(t), dtype)[0], t) for t in targets.split(rows)]
    model.train()
    return float(torch.stack(losses).mean())


class Budget:
    """Fixes the number of steps: as given, or as many as fit the seconds, measured once the compiler is done."""

    WARM, MEASURED = 5, 30

    def __init__(self, steps, seconds, started):
        self.steps, self.seconds, self.started = steps, seconds, started
        self.guess = steps or 10**6

    def total(self, step):
        if self.steps is None and step in (self.WARM, self.MEASURED):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.time()
            if step == self.WARM:
                self.mark = now
            else:
                each = (now - self.mark) / (self.MEASURED - self.WARM)
                self.guess = step + max(1, int((self.started + self.seconds - now) / each))
                print(f"{each * 1e3:.1f} ms a step, {self.guess} steps", flush=True)
        return self.guess


def train(corpus_work, pair, device, settings, c, steps=None, seconds=None, dtype=torch.bfloat16):
    torch.manual_seed(config.SEED)
    model = Target(c).to(device)
    print(f"target: {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    tokens = data.load_tokens(corpus_work, "train", device)
    heldout = data.load_tokens(corpus_work, "heldout", device)
    windows = data.Windows(tokens, settings.row_tokens, config.SEED)
    optimizer = make_optimizer(model, settings)
    compile_layers(model, device)
    loss_of = compiled(head_loss, device)
    bias = [m.e_score_correction_bias for m in model.experts()]

    started, history = time.time(), []
    budget, step = Budget(steps, seconds, started), 0
    while step < (total := budget.total(step)):
        inputs, targets = windows.next(settings.rows)
        x, _, loads = model(inputs, dtype)
        loss = loss_of(model, x, targets)
        loss.backward()
        optimizer.step(step, total)
        with torch.no_grad():
            direction = torch.sign(loads.mean(-1, keepdim=True) - loads) * settings.balance_rate
            torch._foreach_add_(bias, list(direction.unbind(0)))
        step += 1
        if step % 100 == 0 or step in (1, total):
            value = float(loss.detach())
            worst = float((loads.max(-1)[0] / loads.mean(-1)).max())
            print(f"{time.time() - started:6.1f}s step {step}/{total} loss {value:.4f} busiest expert {worst:.2f}", flush=True)
            if not math.isfinite(value):
                raise RuntimeError("the loss is not finite")
            history.append([step, round(value, 4)])
        if step % 500 == 0:
            print(f"        held-out {heldout_loss(model, loss_of, heldout, settings.row_tokens, dtype):.4f}", flush=True)

    with torch.no_grad():
        for b in bias:
            b.sub_(b.mean())
    seen = step * settings.rows * settings.row_tokens
    export.write_target(model, pair / "target")
    stored = export.read_target(pair / "target", c).to(device)
    held = heldout_loss(stored, head_loss, heldout, settings.row_tokens, dtype)
    result = {
        "steps": step,
        "tokens_seen": seen,
        "corpus_tokens": len(tokens),
        "seconds": round(time.time() - started, 1),
        "train_loss": history,
        "heldout_nats_per_token_bf16": held,
    }
    (corpus_work / "target.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"target: {seen / 1e6:.0f} M tokens seen, held-out loss of the stored file {held:.4f}", flush=True)
