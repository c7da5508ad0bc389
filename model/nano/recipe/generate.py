"""Text of the target itself, by plain cached decoding in large batches."""

import time

import torch

import data
from target import causal_attention, rms_norm


class Cache:
    """Keys and values of every layer: [layers, rows, heads, tokens, 48 | 32]."""

    def __init__(self, k, v):
        self.k, self.v = k, v

    @classmethod
    def empty(cls, c, rows, tokens, dtype, device):
        shape = (c.num_hidden_layers, rows, c.num_attention_heads, tokens)
        widths = (c.qk_nope_head_dim + c.qk_rope_head_dim, c.v_head_dim)
        return cls(*(torch.empty(*shape, width, dtype=dtype, device=device) for width in widths))

    def rows(self, begin, end):
        return Cache(self.k[:, begin:end], self.v[:, begin:end])


def extend(model, cache, tokens, start, dtype):
    """Runs tokens [rows, n] at positions start.. (n = 1, or start = 0) and returns the last logits [rows, vocabulary]."""
    n = tokens.shape[1]
    x = model.embed(tokens, dtype)
    cos, sin = model.cos[start : start + n], model.sin[start : start + n]
    for i, layer in enumerate(model.layers):
        q, k, v = layer.self_attn.project(rms_norm(x, layer.input_layernorm, layer.eps), cos, sin)
        cache.k[i, :, :, start : start + n] = k
        cache.v[i, :, :, start : start + n] = v
        if n > 1:
            heads = causal_attention(q, k, v, layer.self_attn.scale)
        else:
            scores = (q @ cache.k[i, :, :, : start + 1].transpose(-1, -2)).float() * layer.self_attn.scale
            heads = scores.softmax(-1).to(dtype) @ cache.v[i, :, :, : start + 1]
        x = x + layer.self_attn.output(heads)
        x = layer.feed_forward(x)[0]
    return model.head(x[:, -1:])[:, 0]


@torch.no_grad()
def continue_text(model, prompts, new_tokens, temperature, generator, dtype, prefill_rows=2048):
    """prompts: [rows, n]; temperature: [rows], 0 for greedy -> [rows, n + new_tokens]."""
    rows, n = prompts.shape
    cache = Cache.empty(model.c, rows, n + new_tokens, dtype, prompts.device)
    bounds = [(b, min(b + prefill_rows, rows)) for b in range(0, rows, prefill_rows)]
    pieces = [extend(model, cache.rows(b, e), prompts[b:e], 0, dtype) for b, e in bounds]
    logits = torch.cat(pieces)
    out = torch.empty(rows, n + new_tokens, dtype=torch.long, device=prompts.device)
    out[:, :n] = prompts
    greedy = temperature == 0
    divisor = torch.where(greedy, torch.ones_like(temperature), temperature)[:, None]
    for t in range(n, n + new_tokens):
        noise = torch.empty(logits.shape, device=logits.device).exponential_(generator=generator)
        drawn = ((logits.float() / divisor).softmax(-1) / noise).argmax(-1)
        out[:, t] = torch.where(greedy, logits.argmax(-1), drawn)
        if t + 1 < n + new_tokens:
            logits = extend(model, cache, out[:, t : t + 1], t, dtype)
    return out


def own_text(model, windows, prompt, rows, settings, generator, dtype):
    """One batch of windows: a corpus prompt and the target's continuation, [rows, prompt + new_tokens]."""
    prompts = windows.next(rows)[0][:, :prompt]
    draws = torch.rand(rows, device=prompts.device, generator=generator)
    temperature = torch.where(draws < settings.sampled_share, settings.temperature, 0.0)
    return continue_text(model, prompts, settings.new_tokens, temperature, generator, dtype)


def pool(model, tokens, settings, row_tokens, seconds, batches, dtype, seed):
    """Rows of the drafter's training: own text in short and long windows, joined to rows of row_tokens, and a fifth of
    plain corpus. `batches` fixes how many batches of own text; otherwise as many as fit the seconds."""
    device = tokens.device
    generator = torch.Generator(device=device).manual_seed(seed)
    corpus = data.Windows(tokens, row_tokens, seed + 1)
    kinds = [(settings.short_prompt, settings.short_rows), (settings.long_prompt, settings.long_rows)]
    windows = [data.Windows(tokens, prompt, seed + 2 + i) for i, (prompt, _) in enumerate(kinds)]
    rows, count, started = [], 0, time.time()
    while count < batches if batches is not None else time.time() - started < seconds:
        prompt, n = kinds[count % 2]
        text = own_text(model, windows[count % 2], prompt, n, settings, generator, dtype)
        rows.append(text.reshape(-1, row_tokens).to(torch.int16))
        count += 1
        if device.type == "cuda":
            torch.cuda.synchronize()
    own = torch.cat(rows)
    plain = corpus.next(max(1, len(own) // 4))[0].to(torch.int16)
    print(f"own text: {count} batches, {own.numel() / 1e6:.1f} M tokens in {time.time() - started:.1f}s", flush=True)
    return torch.cat((own, plain)), count
