"""Trains the drafter on the target's own features, on corpus and on text the target wrote."""

import json
import math
import time

import torch

import config
import data
import export
import generate
from drafter import Drafter, TestTimeLoss
from muon import Optimizer
from train_target import Budget, compile_layers, compiled


def choose_vocabulary(rows, size, vocab_size):
    """The most frequent tokens of the training rows -> ascending target ids, their share of the rows."""
    counts = torch.bincount(rows.flatten().long(), minlength=vocab_size)
    ids = counts.argsort(descending=True)[:size].sort()[0]
    return ids, float(counts[ids].sum() / counts.sum())


class Features:
    """What the drafter learns from, computed by the frozen target."""

    def __init__(self, model, draft_ids, dtype):
        self.model, self.ids, self.dtype = model, draft_ids, dtype
        self.draft_of = torch.full((model.c.vocab_size,), -1, device=draft_ids.device)
        self.draft_of[draft_ids] = torch.arange(len(draft_ids), device=draft_ids.device)

    @torch.no_grad()
    def __call__(self, tokens):
        x, captured, _ = self.model(tokens, self.dtype)
        logits = self.model.head(x)
        wanted = logits[..., self.ids].float().softmax(-1).to(self.dtype)
        best = self.draft_of[logits.argmax(-1)]
        return self.model.embed(tokens, self.dtype), torch.cat(captured, -1), wanted, best


@torch.no_grad()
def heldout_agreement(drafter, features, tokens, settings, rows):
    count = min(len(tokens) // settings.row_tokens, 16 * rows)
    windows = data.with_begin(tokens[: count * settings.row_tokens].view(count, settings.row_tokens))
    loss = TestTimeLoss(settings)
    shares = [loss(drafter, *features(w))[1] for w in windows.split(rows) if len(w) == rows]
    return torch.stack(shares).mean(0).tolist()


def make_optimizer(drafter, settings):
    matrices = [p for n, p in drafter.named_parameters() if p.dim() == 2 and n != "lm_head"]
    vectors = [p for p in drafter.parameters() if p.dim() == 1]
    return Optimizer(matrices, [drafter.lm_head], vectors, settings)


def train(work, pair, device, settings, c, d, own, steps=None, seconds=None, pool_seconds=None, pool_batches=None, dtype=torch.bfloat16):
    torch.manual_seed(config.SEED + 1)
    model = export.read_target(pair / "target", c).to(device)
    tokens = data.load_tokens(work, "train", device)
    heldout = data.load_tokens(work, "heldout", device)
    rows, batches = generate.pool(model, tokens, own, settings.row_tokens, pool_seconds, pool_batches, dtype, config.SEED + 2)
    ids, coverage = choose_vocabulary(rows, d.draft_vocab_size, c.vocab_size)
    drafter = Drafter(d, c.hidden_size, c.max_position_embeddings + 64).to(device)
    drafter.start_from(model, ids)
    print(f"drafter: {sum(p.numel() for p in drafter.parameters())} parameters, vocabulary covers {coverage:.4f}", flush=True)

    compile_layers(model, device)
    features = Features(model, ids, dtype)
    loss_of = TestTimeLoss(settings, lambda function: compiled(function, device))
    optimizer = make_optimizer(drafter, settings)
    order = torch.Generator().manual_seed(config.SEED + 3)
    started, history = time.time(), []
    budget, step, queue = Budget(steps, seconds, started), 0, torch.empty(0, dtype=torch.long)
    while step < (total := budget.total(step)):
        if len(queue) < settings.rows:
            queue = torch.cat((queue, torch.randperm(len(rows), generator=order)))
        batch, queue = rows[queue[: settings.rows].to(device)].long(), queue[settings.rows :]
        loss, agreed = loss_of(drafter, *features(batch))
        loss.backward()
        optimizer.step(step, total)
        step += 1
        if step % 100 == 0 or step in (1, total):
            value = float(loss.detach())
            shares = " ".join(f"{s:.3f}" for s in agreed.tolist())
            print(f"{time.time() - started:6.1f}s step {step}/{total} loss {value:.4f} agreement {shares}", flush=True)
            if not math.isfinite(value):
                raise RuntimeError("the loss is not finite")
            history.append([step, round(value, 4)])
        if step % 1000 == 0:
            export.write_drafter(drafter, ids, c, pair / "draft")

    export.write_drafter(drafter, ids, c, pair / "draft")
    stored, _ = export.read_drafter(pair / "draft", drafter)
    agreement = heldout_agreement(stored, features, heldout, settings, settings.rows)
    result = {
        "steps": step,
        "tokens_seen": step * settings.rows * settings.row_tokens,
        "pool_batches": batches,
        "pool_tokens": rows.numel(),
        "seconds": round(time.time() - started, 1),
        "train_loss": history,
        "vocabulary_coverage": coverage,
        "heldout_agreement_per_step": [round(a, 4) for a in agreement],
    }
    (work / "drafter.json").write_text(json.dumps(result, indent=1) + "\n")
    print("held-out agreement per step " + " ".join(f"{a:.4f}" for a in agreement), flush=True)
