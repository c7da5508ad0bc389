"""Goldens (expected.json), the numbers of the model card (metrics.json) and bench-prompts.json.

The target's outputs are those of transformers; acceptance is that of reference.py.
"""

import argparse
import collections
import json
import math
import pathlib
import random
import time

import torch
import transformers

import acceptance
import config
import corpus
import data
import export
import generate
import reference
from transformers_model import Reference

PROMPT_TOKENS, OUTPUT_TOKENS, OVERSHOOT = 64, 96, 8
GOLDEN_PROMPTS = 16
SAMPLE_PROMPTS = ["func reverse(", "package main\n\nimport (\n", "// A Server accepts connections and "]


def choose_prompts(tok, files, count, seed):
    """64-token openings of functions and types, one package after another, that survive decoding and encoding."""
    packages = collections.defaultdict(list)
    for path, text in files:
        at = [i + 1 for i in range(len(text)) if text.startswith(("\nfunc ", "\ntype "), i)]
        packages[path.rsplit("/", 1)[0]] += [(path, text[i : i + 2000]) for i in at]
    rng = random.Random(seed)
    queues = [rng.sample(v, len(v)) for _, v in sorted(packages.items())]
    rng.shuffle(queues)
    chosen = []
    while len(chosen) < count:
        if not any(queues):
            raise RuntimeError(f"only {len(chosen)} prompts in the held-out files")
        for queue in queues:
            while queue and len(chosen) < count:
                path, text = queue.pop()
                ids = tok.encode(text).ids[:PROMPT_TOKENS]
                prompt = tok.decode(ids, skip_special_tokens=True)
                if len(ids) == PROMPT_TOKENS and tok.encode(prompt).ids == ids:
                    chosen.append({"source": path, "prompt_text": prompt, "prompt_ids": ids})
                    break
    return chosen


@torch.no_grad()
def router_margins(model, tokens):
    """Smallest distance between the last chosen and the first rejected expert, per row."""
    margins = []

    def hook(experts, args):
        choice = experts.route(args[0])[1].sort(-1, descending=True)[0]
        k = experts.c.num_experts_per_tok
        margins.append((choice[..., k - 1] - choice[..., k]).amin(-1))

    handles = [m.register_forward_pre_hook(hook) for m in model.experts()]
    model(tokens, torch.float32)
    for h in handles:
        h.remove()
    return torch.stack(margins).amin(0).tolist()


def rounded(values, digits=5):
    return [round(float(v), digits) for v in values]


def draft_round(seq, n, draft_ids):
    """The first round after the prefill, value by value."""
    tree = seq.draft(n, **reference.SETTINGS["chain_k5"])
    logits = tree["first_logits"]
    logp = logits.log_softmax(-1)
    hidden = seq.features.shape[-1] // 3
    best = reference.best_first(logits)[:8].tolist()
    return {
        "bonus_token": seq.tokens[n],
        "last_row_position": n - 1,
        **{f"aux_{name}_first8": rounded(seq.features[n - 1, i * hidden :][:8], 6) for i, name in enumerate(("low", "mid", "high"))},
        "fc_out_last_row_first8": rounded(seq.fc_out[-1, :8], 6),
        "fc_out_first_row_first8": rounded(seq.fc_out[0, :8], 6),
        "layer_out_last_row_first8": rounded(tree["z"][0][:8], 6),
        "first_step_top8": [
            {"draft_id": i, "target_id": int(draft_ids[i]), "logit": round(float(logits[i]), 5), "logprob": round(float(logp[i]), 5)} for i in best
        ],
        "chain5_tokens": tree["tokens"],
        "chain5_logprobs": rounded([math.log(b / a) for a, b in zip([1.0, *tree["scores"]], tree["scores"])]),
        "chain5_top2_logit_gap": rounded(m for m in tree["margins"]),
        "chain5_layer_out_first4": [rounded(z[:4], 6) for z in tree["z"]],
    }


def tree_round(seq, n):
    """The first tree after the prefill: nodes (root first, parents by node), all candidates, and how much it yields."""
    setting = reference.SETTINGS["tree_topk4_steps5_tokens16"]
    tree = seq.draft(n, **setting)
    node_of = {-1: 0, **{c: i + 1 for i, c in enumerate(tree["nodes"])}}
    pick = [(tree["tokens"][c], node_of[tree["parents"][c]], tree["depths"][c], tree["scores"][c]) for c in tree["nodes"]]
    tokens, parents, depths, scores = zip((seq.tokens[n], -1, 0, 1.0), *pick)
    return {
        **setting,
        "min_margin": round(min(tree["margins"]), 7),
        "tokens": tokens,
        "parents": parents,
        "depths": depths,
        "positions": [n + d for d in depths],
        "scores": rounded(scores, 7),
        "candidates": {
            **{k: tree[k] for k in ("tokens", "parents", "depths")},
            "scores": rounded(tree["scores"], 7),
            "selected": tree["nodes"],
            "beams_per_step": tree["beams"],
        },
        "accept_length": seq.accepted(tree, n) + 1,
    }


@torch.no_grad()
def heldout_loss(ref, tokens, row_tokens=2048, rows=4):
    count = len(tokens) // (row_tokens * rows) * rows
    total = 0.0
    for targets in tokens[: count * row_tokens].view(count, row_tokens).split(rows):
        logits = ref(data.with_begin(targets))[0]
        total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
    return total / (count * row_tokens)


def repeated_4grams(rows):
    """Mean share of 4-grams that occurred before in the same text."""
    shares = []
    for row in rows.tolist():
        grams = list(zip(*(row[i:] for i in range(4))))
        shares.append(1 - len(set(grams)) / len(grams))
    return sum(shares) / len(shares)


def samples(model, tok, heldout, device, count=64, new_tokens=256):
    """Three seeded samples for the card, and repetition of `count` continuations of held-out text against the text itself."""

    def sample(prompts, seed):
        generator = torch.Generator(device=device).manual_seed(seed)
        warmth = torch.ones(len(prompts), device=device)
        return generate.continue_text(model, prompts, new_tokens, warmth, generator, torch.float32)

    shown = []
    for seed, text in enumerate(SAMPLE_PROMPTS, 1):
        row = sample(torch.tensor([tok.encode(text).ids], device=device), seed)[0].tolist()
        shown.append({"seed": seed, "temperature": 1.0, "prompt": text, "text": tok.decode(row, skip_special_tokens=True)})
    length = PROMPT_TOKENS + new_tokens
    starts = torch.linspace(0, len(heldout) - length, count).long()
    windows = torch.stack([heldout[s : s + length] for s in starts.tolist()])
    own = sample(data.with_begin(windows[:, :PROMPT_TOKENS]), config.SEED)[:, PROMPT_TOKENS:]
    return shown, {"samples": round(repeated_4grams(own), 4), "heldout": round(repeated_4grams(windows[:, PROMPT_TOKENS:]), 4)}


def golden_case(case, row, logits, gaps, seq, runs, detailed):
    out = dict(case)
    out["argmax_per_position"] = logits.argmax(-1).tolist()
    out["greedy_96"] = row[:OUTPUT_TOKENS]
    out["greedy_overshoot_8"] = row[OUTPUT_TOKENS:]
    out["top2_gap_96"] = rounded(gaps[:OUTPUT_TOKENS], 4)
    out["min_top2_gap"] = round(float(gaps[:OUTPUT_TOKENS].min()), 5)
    out["accept"] = runs
    if detailed:
        out["last_logits"] = rounded(logits[-1])
        out["draft_round"] = draft_round(seq, PROMPT_TOKENS, seq.draft_ids)
    return out


def goldens(prompts, outputs, sequences, runs, tok):
    """The cases of expected.json; the first three value by value, the first with its tree."""
    tokens, gaps, first, margins = outputs
    cases = []
    for i, (prompt, sequence) in enumerate(zip(prompts, sequences)):
        case = golden_case(prompt, tokens[i].tolist(), first[i], gaps[i], sequence, runs[i], i < 3)
        case["greedy_text"] = tok.decode(case["greedy_96"])
        case["min_router_margin"] = round(margins[i], 8)
        if i == 0:
            case["tree_round"] = tree_round(sequence, PROMPT_TOKENS)
        cases.append(case)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--pair", type=pathlib.Path, required=True)
    parser.add_argument("--prompts", type=int, default=64, help="prompts of the mean acceptance; the first 16 become goldens")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    started = time.time()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tok = data.load_tokenizer(args.pair / "target")
    model = export.read_target(args.pair / "target", config.Target()).to(device)
    ref = Reference(args.work / "dequantised", model, device)

    files = corpus.read(args.work / "corpus" / "heldout.xz")
    prompts = choose_prompts(tok, files, args.prompts, config.SEED)
    ids = torch.tensor([p["prompt_ids"] for p in prompts], device=device)
    tokens, gaps, first = ref.greedy(ids, OUTPUT_TOKENS + OVERSHOOT)
    whole = torch.cat((ids, tokens), 1)
    logits, features = ref(whole)
    own_logits = model.head(model(whole, torch.float32)[0])
    difference = float((own_logits - logits).abs().max() / logits.abs().max())
    outputs = (tokens.cpu(), gaps.cpu(), first.cpu(), router_margins(model, whole))
    print(f"[{time.time() - started:.0f}s] greedy; training code and transformers differ by {difference:.2e} of the largest logit", flush=True)

    heldout = data.load_tokens(args.work, "heldout", device)
    nats = heldout_loss(ref, heldout)
    text_bytes = sum(len(t.encode()) for _, t in files)
    shown, repeated = samples(model, tok, heldout, device)
    repeated["greedy"] = round(repeated_4grams(tokens), 4)
    print(f"[{time.time() - started:.0f}s] held-out loss {nats:.4f}, repeated 4-grams {repeated}", flush=True)

    embed = model.embed_tokens.detach().cpu()
    jobs = [
        acceptance.Job(args.pair, embed, row, feature, list(reference.SETTINGS) if i < GOLDEN_PROMPTS else ["chain_k5"])
        for i, (row, feature) in enumerate(zip(whole.tolist(), features.cpu()))
    ]
    runs = acceptance.run_all(jobs, PROMPT_TOKENS, OUTPUT_TOKENS)
    golden_runs = runs[:GOLDEN_PROMPTS]
    sequences = [job.sequence() for job in jobs[:GOLDEN_PROMPTS]]
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    captured = config.Target().captured_layers
    expected = {
        "reference": f"{versions}; float32, eager attention, weights as stored and dequantised, whole sequence recomputed for each token",
        "captured_layer_inputs": captured,
        "captured_layer_outputs": [i - 1 for i in captured],
        "settings": reference.SETTINGS,
        "overall": {n: acceptance.overall(golden_runs, n) for n in reference.SETTINGS},
        "cases": goldens(prompts, outputs, sequences, golden_runs, tok),
    }
    (args.work / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
    bench = [{k: p[k] for k in ("source", "prompt_text", "prompt_ids")} for p in prompts[:GOLDEN_PROMPTS]]
    (args.pair / "bench-prompts.json").write_text(json.dumps(bench, indent=1) + "\n")
    metrics = {
        "versions": versions,
        "max_logit_difference_training_code": difference,
        "heldout": {
            "tokens": len(heldout),
            "bytes": text_bytes,
            "nats_per_token": round(nats, 4),
            "bits_per_byte": round(nats * len(heldout) / text_bytes / math.log(2), 4),
        },
        "acceptance_16_prompts": expected["overall"],
        "acceptance_all_prompts": {"prompts": len(prompts), "chain_k5": acceptance.overall(runs, "chain_k5")},
        "repeated_4grams": repeated,
        "samples": shown,
    }
    (args.work / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    print(json.dumps({k: v for k, v in metrics.items() if k != "samples"}, indent=1), flush=True)
    print(f"[{time.time() - started:.0f}s] evaluated", flush=True)


if __name__ == "__main__":
    main()
