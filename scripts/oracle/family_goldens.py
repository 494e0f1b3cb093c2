#!/usr/bin/env python3
"""Folders as transformers saves them, one tiny random model per family, and what PyTorch computes with each, in fp32, on a CPU.

Writes OUT/<family>/ (default tests/model/goldens/families), see README.md:
  config.json, generation_config.json, model.safetensors   by save_pretrained
  state_dict.txt        "name shape" of every tensor, in the order of state_dict(), a tied head left out
  oracle.safetensors    stream i32[STEPS, BATCH, SEQ + 1]: tokens, and from the second one on targets;
                        logits f32[SHOWN, SEQ, vocab] of the first samples before step 1;
                        losses, grad_norms f32[STEPS]: of each AdamW step, norms before clipping
"""

import argparse
import pathlib

import torch
import transformers
from safetensors.torch import save_file

from make_goldens import build, clip_, loss_of, optimizer_of

STEPS, BATCH, SEQ, SHOWN, VOCAB = 6, 6, 16, 2, 53  # 6 samples: for three data-parallel ranks, two micro-batches each

SIZES = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, attention_dropout=0.0, bos_token_id=0, eos_token_id=1,
             pad_token_id=None)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)
# Long factors are those used: sequences exceed the 8 positions of the original context. Half of the 8 elements of a head turns: two pairs.
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.25], long_factor=[1.5, 4.0],
                original_max_position_embeddings=8, partial_rotary_factor=0.5)

FAMILIES = {
    "gpt2": transformers.GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0,
                                    embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=1),
    "llama": transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 4}, rms_norm_eps=1e-5),
    "llama3": transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE),
    "smollm": transformers.LlamaConfig(**{**SIZES, "num_attention_heads": 6, "hidden_size": 24}, rms_norm_eps=1e-5,
                                       tie_word_embeddings=True,
                                       rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True,
                                      rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "qwen2.5": transformers.Qwen2Config(**SIZES, use_sliding_window=False, sliding_window=8, max_window_layers=1,
                                        rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
                                                             original_max_position_embeddings=16)),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=SEQ),
    "olmo": transformers.OlmoConfig(**SIZES, tie_word_embeddings=True),
    "olmo2": transformers.Olmo2Config(**SIZES, rms_norm_eps=1e-6),
    "phi3": transformers.Phi3Config(**{**SIZES, "hidden_size": 32}, resid_pdrop=0.0, embd_pdrop=0.0, sliding_window=SEQ,
                                    original_max_position_embeddings=8, rope_parameters=LONGROPE),
    "olmo_clipped": transformers.OlmoConfig(**SIZES, clip_qkv=0.25),
    "llama_dynamic": transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": 10}, rms_norm_eps=1e-5,
                                              rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    # Windows that hide something, in every layer, from a layer on, and in layers of a list.
    "mistral_windowed": transformers.MistralConfig(**SIZES, sliding_window=5),
    "qwen2_windowed": transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3_mixed": transformers.Qwen3Config(**SIZES, head_dim=8, use_sliding_window=True, sliding_window=4,
                                            layer_types=["sliding_attention", "full_attention"]),
    "llama_softcapped": transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, attn_logit_softcapping=0.25,
                                                 final_logit_softcapping=0.5),
}


def write_family(folder, name, config, seed):
    folder.mkdir(parents=True, exist_ok=True)
    model = build(config, seed)
    model.save_pretrained(folder)
    tied = model.config.tie_word_embeddings
    rows = [f"{n} {' '.join(map(str, t.shape))}" for n, t in model.state_dict().items() if not (tied and n == "lm_head.weight")]
    (folder / "state_dict.txt").write_text("\n".join(rows) + "\n")

    stream = torch.randint(0, VOCAB, (STEPS, BATCH, SEQ + 1), generator=torch.Generator().manual_seed(seed + 1))
    optimizer, losses, norms, shown = optimizer_of(model), [], [], None
    for batch in stream:
        optimizer.zero_grad()
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        if shown is None:
            shown = logits.detach()[:SHOWN].clone().contiguous()
        loss = loss_of(logits, batch[:, 1:])
        loss.backward()
        losses.append(loss.item())
        norms.append(clip_(model))
        optimizer.step()
    oracle = dict(stream=stream.to(torch.int32), logits=shown, losses=torch.tensor(losses), grad_norms=torch.tensor(norms))
    save_file(oracle, folder / "oracle.safetensors", metadata=dict(format="pt"))
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes, losses {losses[0]:.6f} -> {losses[-1]:.6f}, norm {norms[0]:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/model/goldens/families")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, (name, config) in enumerate(FAMILIES.items()):
        write_family(out / name, name, config, 7000 + 10 * i)


if __name__ == "__main__":
    main()
