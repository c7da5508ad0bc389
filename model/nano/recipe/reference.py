"""Speculative decoding as it must behave, one sequence at a time, in float32, recomputing every drafter row every round.

The target's own greedy continuation is given (by transformers); acceptance is read off it, because a verify pass over any
tree yields exactly those tokens.
"""

import torch

from drafter import spread
from target import linear

SETTINGS = {
    "chain_k3": {"topk": 1, "num_steps": 3, "num_draft_tokens": 4},
    "chain_k5": {"topk": 1, "num_steps": 5, "num_draft_tokens": 6},
    "chain_k7": {"topk": 1, "num_steps": 7, "num_draft_tokens": 8},
    "tree_topk4_steps5_tokens16": {"topk": 4, "num_steps": 5, "num_draft_tokens": 16},
}


def best_first(scores):
    """Indices by falling score; on equal scores the lower index first."""
    return torch.sort(scores, descending=True, stable=True)[1]


class Sequence:
    """Target features and token embeddings of one sequence, and the drafter."""

    def __init__(self, drafter, draft_ids, embed_tokens, tokens, features):
        """tokens: list; features: [len(tokens), 3 hidden]; draft_ids: target id of every draft id."""
        self.drafter, self.draft_ids, self.embed = drafter, draft_ids.tolist(), embed_tokens
        self.tokens, self.features = tokens, features
        self.heads = drafter.c.num_attention_heads

    def context(self, n):
        """The n rows that have target features; row i pairs feature i with token i + 1."""
        d, device = self.drafter, self.features.device
        h = linear(self.features[None, :n], d.fc)
        embedding = self.embed[torch.tensor(self.tokens[1 : n + 1], device=device)][None]
        q, k, v = d.project(embedding, h, d.cos[:n], d.sin[:n])
        self.k, self.v = spread(k, self.heads), spread(v, self.heads)
        scores = q @ self.k.transpose(-1, -2) * q.shape[-1] ** -0.5
        mask = torch.ones(n, n, dtype=torch.bool, device=device).triu(1)
        heads = scores.masked_fill(mask, float("-inf")).softmax(-1) @ self.v
        self.fc_out = h[0]
        return d.finish(heads, h)[0, -1:]

    def expand(self, tokens, z, ancestors, position):
        """One drafted row per beam. tokens: target ids; z: [beams, hidden] of the parents; ancestors: (k, v) of the
        beams' own drafted rows, each [beams, heads, depth, d]. Returns z and the ancestors with this row added."""
        d = self.drafter
        embedding = self.embed[torch.tensor(tokens, device=z.device)][:, None]
        at = slice(position, position + 1)
        q, k, v = d.project(embedding, z[:, None], d.cos[at], d.sin[at])
        k, v = spread(k, self.heads), spread(v, self.heads)
        if ancestors is not None:
            k, v = torch.cat((ancestors[0], k), 2), torch.cat((ancestors[1], v), 2)
        beams = len(tokens)
        keys = torch.cat((self.k.expand(beams, -1, -1, -1), k), 2)
        values = torch.cat((self.v.expand(beams, -1, -1, -1), v), 2)
        heads = (q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ values
        return d.finish(heads, z[:, None])[:, 0], (k, v)

    def draft(self, n, topk, num_steps, num_draft_tokens):
        """The tree of a round whose root is token n. Node lists are in candidate order; parents are candidate indices."""
        z = self.context(n)
        logits = self.drafter.head(z)
        log = {"z": [z[0]], "first_logits": logits[0], "margins": []}
        tokens, parents, scores, depths, beams = [], [], [], [], []
        best = best_first(logits[0])[: topk + 1]
        probability = logits[0].softmax(-1)
        tokens += best[:topk].tolist()
        parents += [-1] * topk
        depths += [1] * topk
        scores += probability[best[:topk]].tolist()
        beam = list(range(topk))
        beams.append(beam)
        self.note(log, logits[0], best, topk)
        z, ancestors = z.expand(topk, -1), None
        for step in range(1, num_steps):
            z, ancestors = self.expand([self.draft_ids[tokens[b]] for b in beam], z, ancestors, n + step - 1)
            logits = self.drafter.head(z)
            log["z"].append(z[0])
            first = len(tokens)
            for i, b in enumerate(beam):
                best = best_first(logits[i])[: topk + 1]
                probability = logits[i].softmax(-1)[best[:topk]]
                tokens += best[:topk].tolist()
                parents += [b] * topk
                depths += [step + 1] * topk
                scores += (scores[b] * probability).tolist()
                self.note(log, logits[i], best, topk)
            order = best_first(torch.tensor(scores[first:])).tolist()
            self.cut(log, scores[first:], order, topk)
            chosen = order[:topk]
            parent_row = torch.tensor([i // topk for i in chosen], device=z.device)
            beam = [first + i for i in chosen]
            beams.append(beam)
            z, ancestors = z[parent_row], tuple(t[parent_row] for t in ancestors)
        order = best_first(torch.tensor(scores)).tolist()
        self.cut(log, scores, order, num_draft_tokens - 1)
        nodes = sorted(order[: num_draft_tokens - 1])
        targets = [self.draft_ids[t] for t in tokens]
        return {"tokens": targets, "parents": parents, "depths": depths, "scores": scores, "nodes": nodes, "beams": beams, **log}

    def note(self, log, logits, best, topk):
        """A chain's margin is in logits; a tree's cut among one row's tokens is relative, as for the other cuts."""
        a, b = float(logits[best[topk - 1]]), float(logits[best[topk]])
        log["margins"].append(a - b)

    @staticmethod
    def cut(log, scores, order, kept):
        if kept < len(order):
            a, b = scores[order[kept - 1]], scores[order[kept]]
            log["margins"].append((a - b) / max(a, 1e-30))

    def accepted(self, tree, n):
        """How many drafted tokens the target agrees with, given that its tokens follow n."""
        parent, depth = -1, 0
        while True:
            wanted = self.tokens[n + 1 + depth]
            found = [i for i in tree["nodes"] if tree["parents"][i] == parent and tree["tokens"][i] == wanted]
            if not found:
                return depth
            parent, depth = found[0], depth + 1

    def run(self, prompt, output, setting):
        """Rounds until `output` tokens are out, the first of which came from the prefill."""
        lengths, margin, out = [], float("inf"), 1
        while out < output:
            n = prompt + out - 1
            tree = self.draft(n, **setting)
            margin = min([margin, *tree["margins"]])
            lengths.append(self.accepted(tree, n) + 1)
            out += lengths[-1]
        return {
            "accept_lengths": lengths,
            "rounds": len(lengths),
            "mean_accept_length": round(sum(lengths) / len(lengths), 4),
            "min_margin": round(margin, 7),
        }
