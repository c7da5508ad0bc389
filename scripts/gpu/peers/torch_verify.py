"""A verify pass of the shape of Llama-3-8B by transformers and torch.compile.

Random bf16 weights, 1024 positions in a static cache, T rows; medians of CUDA
events. A model of the same shape in plain PyTorch stands in where transformers is
missing or its cache has changed; it runs in a process of its own, since a failure on
the device takes the process along.
"""
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

CONTEXT, LAYERS, HIDDEN, HEADS, KV, DIM, WIDTH, VOCAB = 1024, 32, 4096, 32, 8, 128, 14336, 128256
TOKENS = [1, 4, 8, 16, 32, 64]
LIMIT_S = 130


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(HIDDEN, (HEADS + 2 * KV) * DIM, bias=False)
        self.o = torch.nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.gate_up = torch.nn.Linear(HIDDEN, 2 * WIDTH, bias=False)
        self.down = torch.nn.Linear(WIDTH, HIDDEN, bias=False)
        self.norm1, self.norm2 = torch.nn.RMSNorm(HIDDEN, eps=1e-5), torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.register_buffer("k", torch.randn(1, KV, CONTEXT + 64, DIM))
        self.register_buffer("v", torch.randn(1, KV, CONTEXT + 64, DIM))

    def forward(self, x, cos, sin, mask):
        rows = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).split([HEADS * DIM, KV * DIM, KV * DIM], dim=-1)
        q, k, v = (t.view(1, rows, -1, DIM).transpose(1, 2) for t in (q, k, v))

        def rotate(t):
            low, high = t.chunk(2, dim=-1)
            return t * cos + torch.cat((-high, low), dim=-1) * sin

        self.k[:, :, CONTEXT:CONTEXT + rows] = rotate(k)
        self.v[:, :, CONTEXT:CONTEXT + rows] = v
        seen = CONTEXT + rows
        a = F.scaled_dot_product_attention(rotate(q), self.k[:, :, :seen], self.v[:, :, :seen], attn_mask=mask, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(rows, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = torch.nn.RMSNorm(HIDDEN, eps=1e-5), torch.nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids, cos, sin, mask):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.head(self.norm(x))


def plain():
    model = Plain()

    def call(rows):
        ids = torch.arange(rows)
        cos, sin = torch.randn(rows, DIM), torch.randn(rows, DIM)
        mask = torch.ones(rows, CONTEXT + rows, dtype=torch.bool).tril(CONTEXT)
        return lambda f: f(ids, cos, sin, mask)

    return model, call


def transformers():
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=LAYERS,
                         num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=4096,
                         attn_implementation="sdpa")
    model = LlamaForCausalLM(config).eval()
    cache = StaticCache(config=config, max_cache_len=CONTEXT + 64)
    model(torch.arange(CONTEXT)[None], past_key_values=cache, cache_position=torch.arange(CONTEXT), use_cache=True)

    def call(rows):
        ids, at = torch.arange(rows)[None], torch.arange(CONTEXT, CONTEXT + rows)

        def run(f):
            # Newer caches count by themselves and would run over their end.
            for layer in cache.layers:
                if torch.is_tensor(length := getattr(layer, "cumulative_length", None)):
                    length.fill_(CONTEXT)
                elif length is not None:
                    layer.cumulative_length = CONTEXT
            return f(ids, past_key_values=cache, cache_position=at, position_ids=at[None], use_cache=True).logits

        return run

    return model, call


def measure(name, build, began):
    model, call = build()
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
    for rows in TOKENS:
        if time.time() - began > LIMIT_S:
            print(f"{name}: out of time before T = {rows}")
            return
        run = call(rows)
        for _ in range(4):
            run(compiled)
        torch.cuda.synchronize()
        times = []
        for _ in range(21):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            run(compiled)
            b.record()
            torch.cuda.synchronize()
            times.append(a.elapsed_time(b))
        print(f"{name}: T = {rows:2d} {sorted(times)[10]:6.2f} ms", flush=True)


def main():
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    began = time.time()
    with torch.inference_mode():
        if sys.argv[1:] == ["plain"]:
            measure("PyTorch of the same shape, torch.compile", plain, began)
            return
        try:
            import transformers as library
            measure(f"transformers {library.__version__}, torch.compile", transformers, began)
        except Exception as e:  # the peer's API is not ours to hold
            print(f"transformers: {type(e).__name__}: {str(e)[:100]}", flush=True)
            sys.exit(subprocess.run([sys.executable, __file__, "plain"]).returncode)


main()
