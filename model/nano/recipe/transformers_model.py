"""The stored target inside Hugging Face transformers, in float32: the reference for everything the target computes."""

import json

import torch
from safetensors.torch import save_file

import export


def dequantised(folder, model):
    """Writes `model` (a target read from its file) as a plain DeepSeek-V3 checkpoint in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p for name, p in export.named_weights(model)}
    tensors.update({f"{name}.weight": p[e] for name, p, e in export.expert_weights(model)})
    for i, layer in enumerate(model.layers):
        if not layer.dense:
            tensors[export.bias_name(i)] = layer.mlp.e_score_correction_bias
    save_file({k: v.detach().float().cpu().clone() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    text = export.target_config(model.c)["text_config"]
    text.pop("quantization_config")
    rope = text.pop("rope_scaling")
    rope["rope_type"] = rope.pop("type")
    text["rope_parameters"] = {**rope, "rope_theta": text.pop("rope_theta")}
    text.pop("torch_dtype")
    c = model.c
    text.update(
        model_type="deepseek_v3",
        dtype="float32",
        rope_interleave=True,
        head_dim=c.qk_rope_head_dim,
        qk_head_dim=c.qk_nope_head_dim + c.qk_rope_head_dim,
    )
    (folder / "config.json").write_text(json.dumps(text, indent=1))


class Reference:
    def __init__(self, folder, model, device):
        from transformers import DeepseekV3ForCausalLM

        dequantised(folder, model)
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        try:
            loaded = DeepseekV3ForCausalLM.from_pretrained(folder, experts_implementation="eager", **options)
        except (TypeError, ValueError):
            loaded = DeepseekV3ForCausalLM.from_pretrained(folder, **options)
        self.model, self.device = loaded.to(device).eval(), device
        self.captured = {}
        for i in model.c.captured_layers:
            self.model.model.layers[i].register_forward_pre_hook(self.capture(i), with_kwargs=True)

    def capture(self, index):
        def hook(_, args, kwargs):
            self.captured[index] = (args[0] if args else kwargs["hidden_states"]).detach()

        return hook

    @torch.no_grad()
    def __call__(self, tokens):
        """tokens: [rows, n] -> logits [rows, n, vocabulary], captured features [rows, n, 3 hidden]."""
        logits = self.model(input_ids=tokens.to(self.device), use_cache=False).logits
        return logits, torch.cat([self.captured[i] for i in sorted(self.captured)], -1)

    def greedy(self, prompts, count):
        """The whole sequence recomputed for every token -> tokens [rows, count], top-2 gaps [rows, count], first logits."""
        tokens, gaps, first = prompts.to(self.device), [], None
        for _ in range(count):
            logits = self(tokens)[0]
            first = logits if first is None else first
            top = logits[:, -1].topk(2, -1)
            gaps.append(top.values[:, 0] - top.values[:, 1])
            tokens = torch.cat((tokens, top.indices[:, :1]), 1)
        return tokens[:, prompts.shape[1] :], torch.stack(gaps, 1), first
