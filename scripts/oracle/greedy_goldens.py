#!/usr/bin/env python3
"""What transformers' generate() continues prompts with: tiny random models, greedy, in fp32 on a CPU.

Writes OUT/<family>/ (default tests/infer/goldens), see README.md:
  config.json, generation_config.json, model.safetensors   by save_pretrained, in the family's dtype below
  greedy.json: prompts; and runs "plain" (no token ends it), "penalty" (repetition_penalty) and "end" (eos_token_id of
      generation_config.json ends it), each with, by prompt, the new ids, the log-probabilities of the model for them (before the
      penalty), and `gap`: the least distance of the largest two logits, as the choice saw them, over all tokens of the run.

A continuation tells only as much as its choices are clear and different: seeds are tried until no gap is below MIN_GAP and every
continuation has MIN_DIFFERENT different tokens.
"""

import argparse
import json
import pathlib

import torch
import transformers

from family_goldens import LLAMA3_ROPE
from make_goldens import bounded

VOCAB, NEW, PENALTY = 97, 32, 1.3
LENGTHS = (13, 1, 9, 27, 4)
MIN_GAP, MIN_DIFFERENT = 2e-3, 8

SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, attention_dropout=0.0, bos_token_id=0, eos_token_id=1,
             pad_token_id=None)
# No prompt with its new tokens leaves the trained context.
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.25], long_factor=[1.5, 4.0],
                original_max_position_embeddings=64, partial_rotary_factor=0.5)

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
FAMILIES = {
    "gpt2": (F16, transformers.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
                                          embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=1)),
    "llama": (BF16, transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=True,
                                             rope_parameters=LLAMA3_ROPE)),
    "qwen2": (BF16, transformers.Qwen2Config(**SIZES, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen3": (F16, transformers.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True,
                                            rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    # Longer than any prompt with its new tokens: 27 + 32.
    "mistral": (BF16, transformers.MistralConfig(**SIZES, sliding_window=60)),
    "olmo": (BF16, transformers.OlmoConfig(**SIZES)),
    # Some prompts outgrow the trained context with their new tokens, one is longer.
    "llama_dynamic": (F32, transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": 20}, rms_norm_eps=1e-5,
                                                    rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0))),
    "olmo_clipped": (F32, transformers.OlmoConfig(**SIZES, clip_qkv=1.5)),
    "olmo2": (F32, transformers.Olmo2Config(**SIZES, rms_norm_eps=1e-6)),
    "phi3": (BF16, transformers.Phi3Config(**SIZES, resid_pdrop=0.0, embd_pdrop=0.0, sliding_window=None,
                                           original_max_position_embeddings=64, rope_parameters=LONGROPE)),
    # Shorter than some prompts and than every prompt with its new tokens.
    "mistral_windowed": (BF16, transformers.MistralConfig(**SIZES, sliding_window=8)),
    "qwen2_windowed": (BF16, transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "llama_softcapped": (BF16, transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, attn_logit_softcapping=2.0,
                                                        final_logit_softcapping=6.0)),
}


def build(config, dtype, seed):
    """Weights large enough that attention looks at single tokens and logits are far from each other; rounded to `dtype`."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim >= 2:
                p.normal_(0.0, 0.35)
            elif name.endswith("bias"):
                p.normal_(0.0, 0.3)
            else:
                p.normal_(1.0, 0.2)
            if name.endswith(("model.norm.weight", "ln_f.weight")):
                p.mul_(3.0)  # wider logits
            p.copy_(p.to(dtype).float())
    model.generation_config = transformers.GenerationConfig()  # what generate() is given below is all that it knows
    return bounded(model)


@torch.no_grad()
def continued(model, prompts, **settings):
    """By prompt ids, log-probabilities; the least gap of all."""
    rows, gap = [], float("inf")
    for prompt in prompts:
        config = transformers.GenerationConfig(max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True, output_logits=True,
                                               output_scores=True, pad_token_id=0, **settings)
        ids = torch.tensor([prompt])
        model(ids[:, :1])  # with dynamic scaling it turns by its longest sequence so far, until a short one comes
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        new = out.sequences[0, len(prompt):].tolist()
        logs = [torch.log_softmax(logits[0].double(), -1)[t].item() for logits, t in zip(out.logits, new)]
        for scores in out.scores:
            top = torch.topk(scores[0], 2).values
            gap = min(gap, (top[0] - top[1]).item())
        rows.append(dict(ids=new, logprobs=logs))
        if gap < MIN_GAP:
            break  # this seed will not do
    return dict(gap=gap, continuations=rows)


def attempt(name, config, dtype, seed):
    model = build(config, dtype, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    prompts = [torch.randint(0, VOCAB, (n,), generator=generator).tolist() for n in LENGTHS]
    plain = continued(model, prompts)
    if plain["gap"] < MIN_GAP or any(len(set(c["ids"])) < MIN_DIFFERENT for c in plain["continuations"]):
        return None
    penalty = continued(model, prompts, repetition_penalty=PENALTY)
    if penalty["gap"] < MIN_GAP or [c["ids"] for c in penalty["continuations"]] == [c["ids"] for c in plain["continuations"]]:
        return None
    # Tokens that end some of them in the middle: one, or for every other family two.
    ends = [plain["continuations"][0]["ids"][11]] + ([plain["continuations"][3]["ids"][6]] if len(name) % 2 else [])
    ended = continued(model, prompts, eos_token_id=ends)
    lengths = {len(c["ids"]) for c in ended["continuations"]}
    if len(lengths) < 2 or NEW not in lengths:
        return None
    ended["ends"] = ends
    penalty["repetition_penalty"] = PENALTY
    return model, dict(prompts=prompts, max_new_tokens=NEW, runs=dict(plain=plain, penalty=penalty, end=ended))


def write_family(folder, name, dtype, config):
    for seed in range(1, 2000):
        found = attempt(name, config, dtype, seed)
        if found:
            break
    else:
        raise SystemExit(f"{name}: no seed does")
    model, golden = found
    ends = golden["runs"]["end"]["ends"]
    model.generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=ends if len(ends) > 1 else ends[0])
    folder.mkdir(parents=True, exist_ok=True)
    model.to(dtype).save_pretrained(folder)
    (folder / "greedy.json").write_text(json.dumps(dict(seed=seed, **golden)) + "\n")
    gaps = ", ".join(f"{n} {r['gap']:.4f}" for n, r in golden["runs"].items())
    different = [len(set(c["ids"])) for c in golden["runs"]["plain"]["continuations"]]
    print(f"{name}: seed {seed}, gaps {gaps}; different tokens {different}; "
          f"lengths {[len(c['ids']) for c in golden['runs']['end']['continuations']]}; "
          f"{sum(f.stat().st_size for f in folder.iterdir())} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/infer/goldens")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, (dtype, config) in FAMILIES.items():
        write_family(out / name, name, dtype, config)


if __name__ == "__main__":
    main()
