"""Writes and reads the pair's files: Kimi-K2.5 layout for the target, SGLang/SpecForge layout for the drafter."""

import json
import struct

import torch

import config
from target import GROUP, Target, int4_quantise

DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int32: "I32", torch.int64: "I64", torch.bool: "BOOL"}
PREFIX = "language_model."
ALIGNMENT = 64


def write_safetensors(path, tensors):
    """Data starts at a multiple of 64 bytes, and tensors of such a size come first, so all of them are aligned to 64."""
    tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    size = {k: v.numel() * v.element_size() for k, v in tensors.items()}
    order = sorted(tensors, key=lambda k: (size[k] % ALIGNMENT != 0, -tensors[k].element_size(), k))
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for k in order:
        header[k] = {"dtype": DTYPES[tensors[k].dtype], "shape": list(tensors[k].shape), "data_offsets": [offset, offset + size[k]]}
        offset += size[k]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for k in order:
            f.write(tensors[k].reshape(-1).view(torch.uint8).numpy().tobytes())


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    tensors = {}
    for k, v in header.items():
        if k != "__metadata__":
            begin, end = v["data_offsets"]
            tensors[k] = torch.frombuffer(bytearray(body[begin:end]), dtype=dtypes[v["dtype"]]).reshape(v["shape"])
    return tensors


def pack_int4(nibbles):
    """nibbles: [out, in] in -8..7 -> int32 [out, in/8], lowest nibble first."""
    n = (nibbles.to(torch.int64) + 8).unflatten(-1, (-1, 8))
    words = (n << (4 * torch.arange(8, device=n.device))).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpack_int4(words):
    nibbles = (words.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(8))) & 15
    return nibbles.flatten(-2).float() - 8


def quantised(name, weight):
    nibbles, scales = int4_quantise(weight)
    return {
        f"{name}.weight_packed": pack_int4(nibbles.flatten(-2)),
        f"{name}.weight_scale": scales.squeeze(-1).to(torch.bfloat16),
        f"{name}.weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
    }


def named_weights(model):
    """Published tensor name -> parameter, of everything that is not a routed expert."""
    yield "model.embed_tokens.weight", model.embed_tokens
    yield "model.norm.weight", model.norm
    yield "lm_head.weight", model.lm_head
    for i, layer in enumerate(model.layers):
        for name, p in layer.named_parameters():
            if layer.dense or name not in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
                yield f"model.layers.{i}.{name}.weight", p


def expert_weights(model):
    """Published name up to `.weight`, the parameter of all experts, and the expert's index."""
    for i, layer in enumerate(model.layers):
        if not layer.dense:
            for projection in ("gate_proj", "up_proj", "down_proj"):
                p = getattr(layer.mlp, projection)
                for e in range(p.shape[0]):
                    yield f"model.layers.{i}.mlp.experts.{e}.{projection}", p, e


def bias_name(i):
    return f"model.layers.{i}.mlp.gate.e_score_correction_bias"


@torch.no_grad()
def write_target(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {PREFIX + name: p.to(torch.bfloat16) for name, p in named_weights(model)}
    for name, p, e in expert_weights(model):
        tensors.update(quantised(PREFIX + name, p[e]))
    for i, layer in enumerate(model.layers):
        if not layer.dense:
            tensors[PREFIX + bias_name(i)] = layer.mlp.e_score_correction_bias.float()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(target_config(model.c), indent=2) + "\n")
    generation = {"bos_token_id": config.BEGIN, "eos_token_id": config.END, "pad_token_id": config.PAD}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


@torch.no_grad()
def read_target(folder, c):
    """The stored model, its experts dequantised, frozen."""
    tensors = read_safetensors(folder / "model.safetensors")
    model = Target(c)
    for name, p in named_weights(model):
        p.copy_(tensors[PREFIX + name])
    for name, p, e in expert_weights(model):
        nibbles = unpack_int4(tensors[f"{PREFIX}{name}.weight_packed"])
        p[e].copy_(nibbles * tensors[f"{PREFIX}{name}.weight_scale"].float().repeat_interleave(GROUP, 1))
    for i, layer in enumerate(model.layers):
        if not layer.dense:
            layer.mlp.e_score_correction_bias.copy_(tensors[PREFIX + bias_name(i)])
            layer.mlp.rounded = True
    return model.requires_grad_(False).eval()


def target_config(c):
    special = {"bos_token_id": config.BEGIN, "eos_token_id": config.END, "pad_token_id": config.PAD}
    weights = {
        "actorder": None, "block_structure": None, "dynamic": False, "group_size": GROUP, "num_bits": 4,
        "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": True, "type": "int",
    }  # fmt: skip
    text = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "aux_loss_alpha": 0.001,
        **special,
        "ep_size": 1,
        "first_k_dense_replace": c.first_k_dense_replace,
        "hidden_act": "silu",
        "hidden_size": c.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": c.intermediate_size,
        "kv_lora_rank": c.kv_lora_rank,
        "max_position_embeddings": c.max_position_embeddings,
        "model_type": "kimi_k2",
        "moe_intermediate_size": c.moe_intermediate_size,
        "moe_layer_freq": 1,
        "n_group": 1,
        "n_routed_experts": c.n_routed_experts,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": c.num_attention_heads,
        "num_experts_per_tok": c.num_experts_per_tok,
        "num_hidden_layers": c.num_hidden_layers,
        "num_key_value_heads": c.num_attention_heads,
        "num_nextn_predict_layers": 0,
        "pretraining_tp": 1,
        "q_lora_rank": c.q_lora_rank,
        "qk_nope_head_dim": c.qk_nope_head_dim,
        "qk_rope_head_dim": c.qk_rope_head_dim,
        "quantization_config": {
            "config_groups": {"group_0": {"input_activations": None, "output_activations": None, "targets": ["Linear"], "weights": weights}},
            "format": "pack-quantized",
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
            "kv_cache_scheme": None,
            "quant_method": "compressed-tensors",
            "quantization_status": "compressed",
        },
        "rms_norm_eps": c.rms_norm_eps,
        "rope_scaling": {
            "beta_fast": c.yarn_beta_fast, "beta_slow": c.yarn_beta_slow, "factor": c.yarn_factor, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": c.yarn_original_positions, "type": "yarn",
        },
        "rope_theta": c.rope_theta,
        "routed_scaling_factor": c.routed_scaling_factor,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "v_head_dim": c.v_head_dim,
        "vocab_size": c.vocab_size,
    }  # fmt: skip
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        **special,
        "dtype": "bfloat16",
        "model_type": "kimi_k25",
        "text_config": text,
        "tie_word_embeddings": False,
    }


DRAFT_MATRICES = {
    "fc": "fc", "lm_head": "lm_head", "norm": "norm",
    "hidden_norm": "midlayer.hidden_norm", "input_layernorm": "midlayer.input_layernorm",
    "post_attention_layernorm": "midlayer.post_attention_layernorm",
    "q_proj": "midlayer.self_attn.q_proj", "k_proj": "midlayer.self_attn.k_proj", "v_proj": "midlayer.self_attn.v_proj",
    "o_proj": "midlayer.self_attn.o_proj", "gate_proj": "midlayer.mlp.gate_proj", "up_proj": "midlayer.mlp.up_proj",
    "down_proj": "midlayer.mlp.down_proj",
}  # fmt: skip


@torch.no_grad()
def write_drafter(drafter, draft_ids, target, folder):
    """draft_ids: target ids of the draft vocabulary, ascending."""
    folder.mkdir(parents=True, exist_ok=True)
    d = drafter.c
    tensors = {f"{DRAFT_MATRICES[name]}.weight": p.to(torch.bfloat16) for name, p in drafter.named_parameters()}
    ids = draft_ids.cpu()
    tensors["d2t"] = ids - torch.arange(len(ids))
    tensors["t2d"] = torch.zeros(target.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    write_safetensors(folder / "model.safetensors", tensors)
    described = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": config.BEGIN,
        "draft_vocab_size": d.draft_vocab_size,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [i - 1 for i in target.captured_layers],
            "use_aux_hidden_state": True,
        },
        "eos_token_id": config.END,
        "head_dim": d.head_dim,
        "hidden_act": "silu",
        "hidden_size": d.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": d.intermediate_size,
        "max_position_embeddings": target.max_position_embeddings,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": d.num_attention_heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": d.num_key_value_heads,
        "pad_token_id": config.PAD,
        "pretraining_tp": 1,
        "rms_norm_eps": d.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": d.rope_theta,
        "target_hidden_size": target.hidden_size,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": target.vocab_size,
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")


@torch.no_grad()
def read_drafter(folder, drafter):
    """Fills `drafter` from the files; returns it and the target ids of its vocabulary."""
    tensors = read_safetensors(folder / "model.safetensors")
    for name, p in drafter.named_parameters():
        p.copy_(tensors[f"{DRAFT_MATRICES[name]}.weight"])
    ids = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
    return drafter.requires_grad_(False).eval(), ids
