"""The EAGLE-3 drafter and its training loss over several test-time steps (Li et al., 2025)."""

import torch
import torch.nn.functional as F
from torch import nn

from target import causal_attention, linear, parameter, rms_norm


def rotate_halves(x, cos, sin):
    """x: [batch, heads, tokens, head_dim], rotating (i, i + head_dim/2)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Drafter(nn.Module):
    def __init__(self, c, target_hidden, positions):
        super().__init__()
        self.c = c
        h, d = c.hidden_size, c.head_dim
        self.fc = parameter(h, 3 * target_hidden)
        self.input_layernorm = nn.Parameter(torch.ones(h))
        self.hidden_norm = nn.Parameter(torch.ones(h))
        self.q_proj = parameter(c.num_attention_heads * d, 2 * h)
        self.k_proj = parameter(c.num_key_value_heads * d, 2 * h)
        self.v_proj = parameter(c.num_key_value_heads * d, 2 * h)
        self.o_proj = parameter(h, c.num_attention_heads * d)
        self.post_attention_layernorm = nn.Parameter(torch.ones(h))
        self.gate_proj = parameter(c.intermediate_size, h)
        self.up_proj = parameter(c.intermediate_size, h)
        self.down_proj = parameter(h, c.intermediate_size)
        self.norm = nn.Parameter(torch.ones(h))
        self.lm_head = parameter(c.draft_vocab_size, h)
        frequencies = 1.0 / c.rope_theta ** (torch.arange(0, d, 2).float() / d)
        angles = torch.outer(torch.arange(positions).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def start_from(self, target, draft_ids):
        """The output head starts as the target's, and the features as the highest captured ones."""
        with torch.no_grad():
            self.lm_head.copy_(target.lm_head[draft_ids])
            self.norm.copy_(target.norm)
            h = self.fc.shape[0]
            self.fc.mul_(0.3)
            self.fc[:, -h:] += torch.eye(h, device=self.fc.device)
            self.o_proj.mul_(0.3)
            self.down_proj.mul_(0.3)

    def project(self, embedding, h, cos, sin):
        """embedding, h: [batch, tokens, hidden] -> q: [batch, 8, tokens, 32], k, v: [batch, 4, tokens, 32]."""
        c, d = self.c, self.c.head_dim
        x = torch.cat((rms_norm(embedding, self.input_layernorm, c.rms_norm_eps), rms_norm(h, self.hidden_norm, c.rms_norm_eps)), -1)
        q, k, v = (linear(x, w).unflatten(-1, (-1, d)).transpose(1, 2) for w in (self.q_proj, self.k_proj, self.v_proj))
        return rotate_halves(q, cos, sin), rotate_halves(k, cos, sin), v

    def finish(self, heads, h):
        """heads: [batch, 8, tokens, 32] -> z: [batch, tokens, hidden], the next step's feature."""
        r = h + linear(heads.transpose(1, 2).flatten(2), self.o_proj)
        x = rms_norm(r, self.post_attention_layernorm, self.c.rms_norm_eps)
        return r + linear(F.silu(linear(x, self.gate_proj)) * linear(x, self.up_proj), self.down_proj)

    def head(self, z):
        return linear(rms_norm(z, self.norm, self.c.rms_norm_eps), self.lm_head)


def spread(kv, heads):
    """[batch, kv heads, tokens, d] -> [batch, heads, tokens, d]."""
    b, n, t, d = kv.shape
    return kv.unsqueeze(2).expand(b, n, heads // n, t, d).reshape(b, heads, t, d)


class ChainAttention(torch.autograd.Function):
    """Row i sees the feature rows 0..i and its own chain of drafted rows.

    q, k, v: [batch, heads, tokens, d] with k, v of the feature rows; chain_k, chain_v: [steps, batch, heads, tokens, d], one
    row of each for each row of q. The feature rows go through the flash kernel; its backward is exact for a part of the
    keys when it is given the output and the log-sum over all of them (as in ring attention).
    """

    @staticmethod
    def forward(ctx, q, k, v, chain_k, chain_v):
        scale = q.shape[-1] ** -0.5
        part, part_log, *state = flash(q, k, v, scale)
        scores = (q.float() * chain_k.float()).sum(-1) * scale
        log = torch.logsumexp(torch.cat((part_log[None], scores)), 0)
        out = part.float() * (part_log - log).exp().unsqueeze(-1)
        out = (out + ((scores - log).exp().unsqueeze(-1) * chain_v.float()).sum(0)).to(q.dtype)
        ctx.save_for_backward(q, k, v, chain_k, chain_v, out, log, scores)
        ctx.state = state
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, chain_k, chain_v, out, log, scores = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        grad_q, grad_k, grad_v = flash_backward(grad.contiguous(), q, k, v, out, log, ctx.state, scale)
        g = grad.float()
        weights = (scores - log).exp()
        towards = (g * chain_v.float()).sum(-1) - (g * out.float()).sum(-1)
        grad_scores = (weights * towards * scale).unsqueeze(-1)
        grad_q = grad_q + (grad_scores * chain_k.float()).sum(0).to(q.dtype)
        grad_chain_k = (grad_scores * q.float()).to(q.dtype)
        return grad_q, grad_k, grad_v, grad_chain_k, (weights.unsqueeze(-1) * g).to(q.dtype)


def flash(q, k, v, scale):
    """Causal attention -> output, log-sum of exponentials [batch, heads, tokens], and what the backward wants."""
    out, log, *state = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)
    return out, log, *state[:6]


def flash_backward(grad, q, k, v, out, log, state, scale):
    cum_q, cum_k, max_q, max_k, seed, offset = state
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
    return backward(grad, q, k, v, out, log, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset, scale=scale)


def ahead(x, j, fill=0):
    """Row i of the result is row i + j of x: [batch, tokens, ...]."""
    return torch.cat((x[:, j:], torch.full_like(x[:, :j], fill)), 1)


def step_inputs(drafter, embedding, h, cos, sin):
    q, k, v = drafter.project(embedding, h, cos, sin)
    heads = drafter.c.num_attention_heads
    return q, spread(k, heads), spread(v, heads)


def step_loss(drafter, heads, h, wanted, goal, hard_weight):
    """Returns z, the mean loss over the rows whose goal is in the draft vocabulary, and how many rows hit it."""
    z = drafter.finish(heads, h)
    logits = drafter.head(z).float()
    logp = torch.log_softmax(logits, -1)
    counted = (goal >= 0).float()
    hard = -logp.gather(-1, goal.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    soft = -(wanted.float() * logp).sum(-1)
    loss = ((hard_weight * hard + (1 - hard_weight) * soft) * counted).sum() / counted.sum().clamp_min(1.0)
    return z, loss, (logits.argmax(-1) == goal).float().sum()


class TestTimeLoss:
    """The discounted loss over the test-time steps. The two halves of a step compile once and serve every step."""

    def __init__(self, settings, wrap=lambda function: function):
        self.settings = settings
        self.step_inputs, self.step_loss = wrap(step_inputs), wrap(step_loss)

    def __call__(self, drafter, embedding, features, wanted, best):
        """embedding: [batch, tokens, hidden] of the tokens; features: [batch, tokens, 3 hidden]; wanted: [batch, tokens,
        draft vocabulary] the target's probabilities of the token after each; best: [batch, tokens] the target's argmax as
        a draft id, or -1 where the draft vocabulary lacks it. Returns the loss and each step's share of rows whose best
        draft token is the target's.
        """
        batch, tokens = best.shape
        steps = self.settings.test_time_steps
        wanted = F.pad(wanted, (0, 0, 0, steps))
        h = linear(features, drafter.fc)
        chain, loss, agreed = [], 0.0, []
        for j in range(steps):
            at = slice(j, j + tokens)
            q, k, v = self.step_inputs(drafter, ahead(embedding, j + 1), h, drafter.cos[at], drafter.sin[at])
            if j == 0:
                k0, v0 = k, v
                heads = causal_attention(q, k, v, q.shape[-1] ** -0.5)
            else:
                chain.append((k, v))
                heads = ChainAttention.apply(q, k0, v0, *(torch.stack(rows) for rows in zip(*chain)))
            goal = ahead(best, j + 1, -1)
            h, step, hits = self.step_loss(drafter, heads, h, wanted[:, j + 1 : j + 1 + tokens], goal, self.settings.hard_weight)
            loss = loss + self.settings.step_discount**j * step
            agreed.append(hits.detach() / (batch * (tokens - 1 - j)))
        weight = sum(self.settings.step_discount**j for j in range(steps))
        return loss / weight, torch.stack(agreed)
