"""Every number and seed of the pair, in one place."""

from dataclasses import dataclass

SEED = 20261129

BEGIN, END, PAD = 0, 1, 2
SPECIAL_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"]


@dataclass(frozen=True)
class Target:
    """DeepSeek-V3 form; names follow the published config.json."""

    vocab_size: int = 2048
    hidden_size: int = 256
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    q_lora_rank: int = 96
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    first_k_dense_replace: int = 1
    intermediate_size: int = 768
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 128
    routed_scaling_factor: float = 2.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048
    rope_theta: float = 50000.0
    yarn_factor: float = 4.0
    yarn_original_positions: int = 512
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    dropout: float = 0.1  # of each block's output, in training only

    @property
    def captured_layers(self):
        """Layers at whose input the residual stream is saved for the drafter."""
        n = self.num_hidden_layers
        return (2, n // 2, n - 3)


@dataclass(frozen=True)
class Drafter:
    """Llama-style EAGLE-3; names follow the published config.json."""

    draft_vocab_size: int = 1536
    hidden_size: int = 256
    intermediate_size: int = 1024
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 32
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0


@dataclass(frozen=True)
class TargetTraining:
    rows: int = 32  # sequences a step
    row_tokens: int = 2048
    muon_rate: float = 4e-3
    adam_rate: float = 3e-3
    weight_decay: float = 0.2
    warmup_steps: int = 100
    decay_from: float = 0.3  # fraction of the steps after which the rate falls linearly to zero
    balance_rate: float = 1e-3  # step of the router's correction bias


@dataclass(frozen=True)
class DrafterTraining:
    rows: int = 32
    row_tokens: int = 1024
    test_time_steps: int = 6
    step_discount: float = 0.9  # weight of test-time step j is step_discount**j
    hard_weight: float = 0.5  # share of the loss on the target's argmax; the rest is cross-entropy to its probabilities
    muon_rate: float = 4e-3
    adam_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup_steps: int = 100
    decay_from: float = 0.3


@dataclass(frozen=True)
class Generation:
    """The target's own text, on which the drafter learns what it will meet when it runs."""

    short_prompt: int = 64
    short_rows: int = 16384
    long_prompt: int = 320
    long_rows: int = 4096
    new_tokens: int = 192
    sampled_share: float = 0.25  # rows drawn at `temperature`; the others are greedy
    temperature: float = 0.8


@dataclass(frozen=True)
class Corpus:
    heldout_bytes: int = 1_000_000
    max_package_bytes: int = 150_000  # a larger package is never held out
    shingle_lines: int = 4
    max_shared: float = 0.05  # of a held-out package's shingles found in any other package
    table_bytes: int = 4096
    table_digit_share: float = 0.16
    table_line_share: float = 0.6
