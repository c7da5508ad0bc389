"""Holds two runs of octet generate --json against each other: tokens and acceptance.

Fails where the mean acceptance lengths are more than 0.1 apart. bf16 may choose
another token than float32 where two logits are close, so tokens are only counted.
"""
import json
import sys

a, b = (json.load(open(f)) for f in sys.argv[1:])
pairs = list(zip(a["token_ids"], b["token_ids"]))
equal = sum(x == y for x, y in pairs)
first = next((i for i, (x, y) in enumerate(pairs) if x != y), "none")
lengths = [r["mean_acceptance_length"] for r in (a, b)]
rates = [r["timings"]["tokens_per_s"] for r in (a, b)]
print(f"{equal} of {len(pairs)} tokens equal, first difference {first}, acceptance {lengths[0]:.3f} and {lengths[1]:.3f}, "
      f"{rates[0]:.0f} and {rates[1]:.0f} tokens/s")
sys.exit(abs(lengths[0] - lengths[1]) > 0.1)
