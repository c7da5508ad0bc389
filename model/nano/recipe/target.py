"""The target: DeepSeek-V3 with multi-head latent attention, mixture of experts, and INT4 rounding in the loop."""

import math

import torch
import torch.nn.functional as F
from torch import nn

GROUP = 32  # input features that share one INT4 scale


def rms_norm(x, weight, eps):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight.to(x.dtype) * y.to(x.dtype)


def linear(x, weight):
    return F.linear(x, weight.to(x.dtype))


def int4_quantise(weight):
    """weight: [..., out, in] -> nibbles in -8..7 [..., out, in/32, 32], scales [..., out, in/32, 1] (bf16 values in f32)."""
    groups = weight.float().reshape(*weight.shape[:-1], -1, GROUP)
    scales = (groups.abs().amax(-1, keepdim=True) / 7).clamp_min(1e-6).to(torch.bfloat16).float()
    return (groups / scales).round().clamp(-8, 7), scales


def int4_round(weight):
    """Rounds as the stored experts are, and passes the gradient straight through."""
    with torch.no_grad():
        nibbles, scales = int4_quantise(weight)
        delta = (nibbles * scales).reshape(weight.shape) - weight
    return weight + delta


def yarn_frequencies(c):
    """c: config.Target -> inverse frequencies [rope/2], softmax scale. mscale = mscale_all_dim = 1, so cos and sin are unscaled."""
    dim, base = c.qk_rope_head_dim, c.rope_theta

    def correction(rotations):
        return dim * math.log(c.yarn_original_positions / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction(c.yarn_beta_fast)), 0)
    high = min(math.ceil(correction(c.yarn_beta_slow)), dim - 1)
    ramp = torch.clamp((torch.arange(dim // 2).float() - low) / (high - low if high > low else 0.001), 0, 1)
    plain = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
    frequencies = plain / c.yarn_factor * ramp + plain * (1 - ramp)
    scale = (c.qk_nope_head_dim + c.qk_rope_head_dim) ** -0.5
    return frequencies, scale * (0.1 * math.log(c.yarn_factor) + 1) ** 2


def rotate_pairs(x, cos, sin):
    """x: [batch, heads, tokens, rope], pairs (2i, 2i+1). The result lists first members, then second members."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def causal_attention(q, k, v, scale):
    """q, k: [batch, heads, tokens, 48], v: [batch, heads, tokens, 32] -> [batch, heads, tokens, 32]."""
    if q.is_cuda and q.dtype == torch.bfloat16:
        padded = F.pad(v, (0, q.shape[-1] - v.shape[-1]))
        return F.scaled_dot_product_attention(q, k, padded, is_causal=True, scale=scale)[..., : v.shape[-1]]
    tokens = q.shape[-2]
    mask = torch.full((tokens, tokens), float("-inf"), device=q.device).triu(1)
    weights = torch.softmax((q @ k.transpose(-1, -2)).float() * scale + mask, -1)
    return weights.to(q.dtype) @ v


def parameter(*shape, std=None):
    return nn.Parameter(torch.randn(*shape) * (shape[-1] ** -0.5 if std is None else std))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        heads, qk = c.num_attention_heads, c.qk_nope_head_dim + c.qk_rope_head_dim
        self.q_a_proj = parameter(c.q_lora_rank, c.hidden_size)
        self.q_a_layernorm = nn.Parameter(torch.ones(c.q_lora_rank))
        self.q_b_proj = parameter(heads * qk, c.q_lora_rank)
        self.kv_a_proj_with_mqa = parameter(c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size)
        self.kv_a_layernorm = nn.Parameter(torch.ones(c.kv_lora_rank))
        self.kv_b_proj = parameter(heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank)
        self.o_proj = parameter(c.hidden_size, heads * c.v_head_dim, std=0.2 * (heads * c.v_head_dim) ** -0.5)
        self.scale = yarn_frequencies(c)[1]

    def project(self, x, cos, sin):
        """x: [batch, tokens, hidden] -> q, k, v: [batch, heads, tokens, 48 | 48 | 32]."""
        c, heads = self.c, self.c.num_attention_heads
        q = linear(rms_norm(linear(x, self.q_a_proj), self.q_a_layernorm, c.rms_norm_eps), self.q_b_proj)
        q = q.unflatten(-1, (heads, -1)).transpose(1, 2)
        q_nope, q_rope = q.split((c.qk_nope_head_dim, c.qk_rope_head_dim), -1)
        latent, k_rope = linear(x, self.kv_a_proj_with_mqa).split((c.kv_lora_rank, c.qk_rope_head_dim), -1)
        kv = linear(rms_norm(latent, self.kv_a_layernorm, c.rms_norm_eps), self.kv_b_proj)
        k_nope, v = kv.unflatten(-1, (heads, -1)).transpose(1, 2).split((c.qk_nope_head_dim, c.v_head_dim), -1)
        k_rope = rotate_pairs(k_rope.unsqueeze(1), cos, sin).expand(-1, heads, -1, -1)
        q = torch.cat((q_nope, rotate_pairs(q_rope, cos, sin)), -1)
        return q, torch.cat((k_nope, k_rope), -1), v

    def output(self, heads):
        """heads: [batch, heads, tokens, 32] -> [batch, tokens, hidden]."""
        return linear(heads.transpose(1, 2).flatten(2), self.o_proj)

    def forward(self, x, cos, sin):
        q, k, v = self.project(x, cos, sin)
        return self.output(causal_attention(q, k, v, self.scale))


class Dense(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = parameter(width, hidden)
        self.up_proj = parameter(width, hidden)
        self.down_proj = parameter(hidden, width, std=0.2 * width**-0.5)

    def forward(self, x):
        return linear(F.silu(linear(x, self.gate_proj)) * linear(x, self.up_proj), self.down_proj)


class Experts(nn.Module):
    """Every expert is computed for every token, as one wide MLP whose inner units are weighted by the router: at this
    size three large products are faster than any grouping of tokens."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        n, width, hidden = c.n_routed_experts, c.moe_intermediate_size, c.hidden_size
        self.gate = parameter(n, hidden)
        self.register_buffer("e_score_correction_bias", torch.zeros(n))
        self.gate_proj = parameter(n, width, hidden)
        self.up_proj = parameter(n, width, hidden)
        self.down_proj = parameter(n, hidden, width, std=0.2 * width**-0.5)
        self.shared_experts = Dense(hidden, width)
        self.rounded = False  # the weights are already what the file stores

    def route(self, x):
        """x: [..., hidden] -> weights [..., experts], zero where not chosen; choice scores; chosen mask."""
        c = self.c
        scores = torch.sigmoid(F.linear(x.float(), self.gate.to(torch.bfloat16).float()))
        choice = scores.detach() + self.e_score_correction_bias
        chosen = torch.zeros_like(choice).scatter(-1, choice.topk(c.num_experts_per_tok, -1)[1], 1.0)
        weights = scores * chosen
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * c.routed_scaling_factor
        return weights, choice, chosen

    def forward(self, x):
        """Returns the output and how many tokens each expert got."""
        weights, _, chosen = self.route(x)
        gate, up, down = (w if self.rounded else int4_round(w) for w in (self.gate_proj, self.up_proj, self.down_proj))
        inner = F.silu(linear(x, gate.flatten(0, 1))) * linear(x, up.flatten(0, 1))
        inner = (inner.unflatten(-1, (weights.shape[-1], -1)) * weights.to(x.dtype).unsqueeze(-1)).flatten(-2)
        routed = linear(inner, down.transpose(0, 1).flatten(1))
        return routed + self.shared_experts(x), chosen.flatten(0, -2).sum(0)


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.eps, self.dropout = c.rms_norm_eps, c.dropout
        self.input_layernorm = nn.Parameter(torch.ones(c.hidden_size))
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.Parameter(torch.ones(c.hidden_size))
        self.dense = index < c.first_k_dense_replace
        self.mlp = Dense(c.hidden_size, c.intermediate_size) if self.dense else Experts(c)

    def feed_forward(self, x):
        y = self.mlp(rms_norm(x, self.post_attention_layernorm, self.eps))
        y, load = (y, None) if self.dense else y
        return x + F.dropout(y, self.dropout, self.training), load

    def forward(self, x, cos, sin):
        y = self.self_attn(rms_norm(x, self.input_layernorm, self.eps), cos, sin)
        x = x + F.dropout(y, self.dropout, self.training)
        return self.feed_forward(x)


class Target(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = parameter(c.vocab_size, c.hidden_size, std=0.05)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(c.hidden_size))
        self.lm_head = parameter(c.vocab_size, c.hidden_size, std=0.01)
        frequencies = yarn_frequencies(c)[0]
        angles = torch.outer(torch.arange(c.max_position_embeddings + 64).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def experts(self):
        return [layer.mlp for layer in self.layers if not layer.dense]

    def freeze(self):
        """Replaces the routed experts by their rounded values, for use after training."""
        with torch.no_grad():
            for m in self.experts():
                for w in (m.gate_proj, m.up_proj, m.down_proj):
                    nibbles, scales = int4_quantise(w)
                    w.copy_((nibbles * scales).reshape(w.shape))
                m.rounded = True
        return self.requires_grad_(False).eval()

    def embed(self, tokens, dtype):
        return F.embedding(tokens, self.embed_tokens.to(dtype))

    def head(self, x):
        return linear(rms_norm(x, self.norm, self.c.rms_norm_eps), self.lm_head)

    def forward(self, tokens, dtype):
        """tokens: [batch, tokens] -> residual stream after the last layer, streams at the captured layers' inputs
        (each [batch, tokens, hidden]), tokens each expert got [moe layers, experts]."""
        x = self.embed(tokens, dtype)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        captured, loads = [], []
        for i, layer in enumerate(self.layers):
            if i in self.c.captured_layers:
                captured.append(x)
            x, load = layer(x, cos, sin)
            if load is not None:
                loads.append(load)
        return x, captured, torch.stack(loads)
