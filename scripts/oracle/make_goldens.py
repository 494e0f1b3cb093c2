#!/usr/bin/env python3
"""Golden files from PyTorch and transformers: what one training run of a tiny random model computes, in fp32, on a CPU.

Writes OUT/<case>/ for every case (default tests/model/goldens), see README.md:
  config.json            Hugging Face configuration
  weights.safetensors    initial parameters, Hugging Face names and orientation
  batch.safetensors      tokens, targets i64[steps, batch, seq]: targets are the tokens that follow
  forward.safetensors    logits f32[batch, seq, vocab] and loss f32[] of step 1 with the initial weights
  gradients.safetensors  d loss / d parameter of step 1, before clipping
  trained.safetensors    parameters after STEPS steps; losses, grad_norms f32[steps] (norms before clipping)
and OUT/rope.json: cos and sin of rotary embeddings for every scaling.
"""

import argparse
import functools
import importlib
import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.gemma2 import modeling_gemma2

STEPS, BATCH, SEQ, VOCAB = 10, 2, 16, 97
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

LLAMA_LIKE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=64, attention_dropout=0.0, bos_token_id=0, eos_token_id=0)
NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)
YARN_ROPE = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)

CASES = {
    "gpt2": transformers.GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4, n_inner=64,
                                    bos_token_id=0, eos_token_id=0, **NO_DROPOUT),
    "llama": transformers.LlamaConfig(**LLAMA_LIKE, rms_norm_eps=1e-5),
    "llama3_rope": transformers.LlamaConfig(**LLAMA_LIKE, rms_norm_eps=1e-5, rope_parameters=LLAMA3_ROPE,
                                            tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "qwen2": transformers.Qwen2Config(**LLAMA_LIKE, tie_word_embeddings=True,
                                      rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "qwen3": transformers.Qwen3Config(**LLAMA_LIKE, head_dim=16, rope_parameters=YARN_ROPE),
    "mistral": transformers.MistralConfig(**LLAMA_LIKE, sliding_window=None),
}


def build(config, seed):
    """A model with weights that make every term of the gradient visible: biases and norms are not at their trivial start."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim >= 2:
                p.normal_(0.0, 0.08)
            elif name.endswith("bias"):
                p.normal_(0.0, 0.05)
            else:
                p.normal_(1.0, 0.1)
    return bounded(model)


def bounded(model):
    """The model with the bounds of scores and logits that its config names, as Gemma 2 has them: other families ignore the keys."""
    modeling = importlib.import_module(type(model).__module__)
    if hasattr(modeling, "eager_attention_forward"):
        plain = getattr(modeling, "plain_eager_attention_forward", modeling.eager_attention_forward)
        modeling.plain_eager_attention_forward = plain
        cap = getattr(model.config, "attn_logit_softcapping", None)
        modeling.eager_attention_forward = functools.partial(modeling_gemma2.eager_attention_forward, softcap=cap) if cap else plain
    cap = getattr(model.config, "final_logit_softcapping", None)
    if cap:
        model.lm_head.register_forward_hook(lambda module, inputs, logits: torch.tanh(logits / cap) * cap)
    return model


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def optimizer_of(model):
    decayed = [p for n, p in model.named_parameters() if p.ndim >= 2 and not n.endswith(".bias")]
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or n.endswith(".bias")]
    groups = [dict(params=decayed, weight_decay=DECAY), dict(params=others, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False, fused=False)


def clip_(model):
    """min(1, CLIP / (norm + 1e-6)) with the norm in double."""
    norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
    scale = min(1.0, CLIP / (norm + 1e-6))
    for p in model.parameters():
        p.grad.mul_(scale)
    return norm


def parameters(model):
    return {n: p.detach().clone().contiguous() for n, p in model.named_parameters()}


def write_case(folder, name, config, seed):
    folder.mkdir(parents=True, exist_ok=True)
    model = build(config, seed)
    text = json.loads(model.config.to_json_string(use_diff=False))
    hidden = ("id2label", "label2id", "_name_or_path")
    kept = {k: v for k, v in text.items() if (v is not None or k == "sliding_window") and k not in hidden}
    kept["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")

    generator = torch.Generator().manual_seed(seed + 1)
    stream = torch.randint(0, VOCAB, (STEPS, BATCH, SEQ + 1), generator=generator)
    tokens, targets = stream[..., :-1].contiguous(), stream[..., 1:].contiguous()
    save_file(dict(tokens=tokens, targets=targets), folder / "batch.safetensors", metadata=dict(format="pt"))
    save_file(parameters(model), folder / "weights.safetensors", metadata=dict(format="pt"))

    optimizer, losses, norms = optimizer_of(model), [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=tokens[step], use_cache=False).logits
        loss = loss_of(logits, targets[step])
        loss.backward()
        if step == 0:
            save_file(dict(logits=logits.detach().contiguous(), loss=loss.detach()), folder / "forward.safetensors",
                      metadata=dict(format="pt"))
            save_file({n: p.grad.clone().contiguous() for n, p in model.named_parameters()},
                      folder / "gradients.safetensors", metadata=dict(format="pt"))
        losses.append(loss.item())
        norms.append(clip_(model))
        optimizer.step()
    result = parameters(model)
    result.update(losses=torch.tensor(losses), grad_norms=torch.tensor(norms))
    save_file(result, folder / "trained.safetensors", metadata=dict(format="pt"))
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes, losses {losses[0]:.6f} -> {losses[-1]:.6f}, norm {norms[0]:.6f}")


ROPE_CASES = {
    "default": dict(rope_type="default", rope_theta=10000.0),
    "linear": dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
    "llama3.1": dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                     original_max_position_embeddings=8192),
    "llama3.2": dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                     original_max_position_embeddings=8192),
    "yarn": dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32768),
    "yarn-no-truncate": dict(rope_type="yarn", rope_theta=10000.0, factor=16.0, original_max_position_embeddings=4096,
                             beta_fast=16.0, beta_slow=2.0, truncate=False),
    "yarn-attention-factor": dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, attention_factor=1.25,
                                  original_max_position_embeddings=4096),
    "yarn-mscale": dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, mscale=1.0, mscale_all_dim=0.707,
                        original_max_position_embeddings=4096),
    "yarn-factor-from-context": dict(rope_type="yarn", rope_theta=10000.0, factor=None,
                                     original_max_position_embeddings=8192),
    # Positions go to 20000: beyond the first's context, within the second's.
    "longrope-long": dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=4096,
                          short_factor=[1.0 + i / 64 for i in range(32)], long_factor=[1.0 + i * i / 16 for i in range(32)]),
    "longrope-short": dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32768,
                           short_factor=[1.0 + i / 64 for i in range(32)], long_factor=[1.0 + i * i / 16 for i in range(32)]),
    "longrope-attention-factor": dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=4096, factor=16.0,
                                      attention_factor=1.19, short_factor=[1.0] * 32, long_factor=[2.0 + i for i in range(32)]),
    # The trained context is max_position_embeddings.
    "dynamic-within": dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0),
    "dynamic-beyond": dict(rope_type="dynamic", rope_theta=500000.0, factor=2.5),
}
ROPE_POSITIONS = [0, 1, 2, 3, 7, 100, 1023, 8191, 20000]


def write_rope(path):
    """cos and sin [len(ROPE_POSITIONS), head_dim / 2] per case, and the configuration that made them."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    cases = []
    for name, rope in ROPE_CASES.items():
        positions = 4096 if name == "dynamic-beyond" else 131072
        sizes = {**LLAMA_LIKE, "max_position_embeddings": positions}
        config = transformers.LlamaConfig(**sizes, head_dim=64, rope_parameters=dict(rope))
        table = LlamaRotaryEmbedding(config)
        cos, sin = table(torch.zeros(1), torch.tensor([ROPE_POSITIONS]))
        half = config.head_dim // 2
        shown = [float(f"{x:.9g}") for x in table.inv_freq.tolist()]
        cases.append(dict(name=name, head_dim=config.head_dim, max_position_embeddings=positions, rope_parameters=rope,
                          positions=ROPE_POSITIONS, attention_factor=table.attention_scaling, inv_freq=shown,
                          cos=[[float(f"{x:.9g}") for x in row] for row in cos[0, :, :half].tolist()],
                          sin=[[float(f"{x:.9g}") for x in row] for row in sin[0, :, :half].tolist()]))
    lines = ",\n".join(json.dumps(c) for c in cases)
    path.write_text("[\n" + lines + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/model/goldens")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, (name, config) in enumerate(CASES.items()):
        write_case(out / name, name, config, 1000 + 10 * i)
    write_rope(out / "rope.json")


if __name__ == "__main__":
    main()
