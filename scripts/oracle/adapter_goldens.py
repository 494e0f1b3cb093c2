#!/usr/bin/env python3
"""What PEFT computes when it trains adapters, LoRA's and DoRA's, of the tiny families beside this script, in fp32 on a CPU.

Needs `pip install peft==0.21.2` beside requirements.txt: nothing else here does. Reads tests/model/goldens/families/<family> and
writes OUT/<case>.safetensors (default tests/model/goldens/adapters), see README.md:
  stream i32[STEPS, BATCH, SEQ + 1]; logits f32[SHOWN, SEQ, VOCAB] of step 1; losses, grad_norms f32[STEPS], before clipping
  initial.N, gradient.N, trained.N   f32: tensor N ("model.layers.0.self_attn.q_proj.lora_A.weight") before step 1, its gradient of
                                     step 1 before clipping, and its value after the last AdamW step
  length.N           f32: a magnitude as PEFT begins it
B is not zero and a magnitude is not the row's length at first, so that every gradient shows.
"""

import argparse
import pathlib

import peft
import torch
import transformers
from safetensors.torch import save_file

from family_goldens import BATCH, SEQ, SHOWN, VOCAB, loss_of
from make_goldens import clip_, optimizer_of

STEPS = 10

CASES = {
    "gpt2": ("gpt2", dict(r=4, lora_alpha=8, target_modules="all-linear", fan_in_fan_out=True)),
    "llama_layer": ("llama", dict(r=3, lora_alpha=8, target_modules="all-linear", layers_to_transform=[1])),
    "qwen2_rslora": ("qwen2", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
    "phi3": ("phi3", dict(r=2, lora_alpha=4, target_modules=r".*\.(qkv_proj|o_proj|gate_up_proj)")),
    "llama_saved": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"],
                                  modules_to_save=["embed_tokens", "lm_head", "input_layernorm"])),
    "qwen2_saved": ("qwen2", dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens"],
                                  ensure_weight_tying=True)),
    "llama_dora": ("llama", dict(r=4, lora_alpha=6, use_dora=True, target_modules="all-linear")),
    "gpt2_dora": ("gpt2", dict(r=3, lora_alpha=6, use_dora=True, target_modules="all-linear", fan_in_fan_out=True)),
}


def trained_of(model):
    def name_of(n):
        n = n.removeprefix("base_model.model.").replace("_vector.default.weight", "_vector")  # as PEFT saves it
        return n.replace(".default", "").replace(".modules_to_save", "")

    return {name_of(n): p for n, p in model.named_parameters() if p.requires_grad}


def write_case(path, base, settings, seed):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    if settings.get("layers_to_transform"):
        settings = settings | dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    model = peft.get_peft_model(model.train(), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    torch.manual_seed(seed)
    trained, lengths = trained_of(model), {}
    with torch.no_grad():
        for n, p in trained.items():
            if n.endswith("_magnitude_vector"):
                lengths[f"length.{n}"] = p.detach().clone()
                p.mul_(1 + 0.1 * torch.randn(p.shape))
            else:
                p.normal_(0.0, 0.1)
    tensors = lengths | {f"initial.{n}": p.detach().clone() for n, p in trained.items()}

    stream = torch.randint(0, VOCAB, (STEPS, BATCH, SEQ + 1), generator=torch.Generator().manual_seed(seed + 1))
    losses, norms = [], []
    for p in model.parameters():
        if not p.requires_grad:
            p.grad = torch.zeros_like(p)  # clip_() reads them
    optimizer = optimizer_of(torch.nn.ParameterList(trained.values()))
    for step, batch in enumerate(stream):
        optimizer.zero_grad()
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = loss_of(logits, batch[:, 1:])
        loss.backward()
        if step == 0:
            tensors["logits"] = logits.detach()[:SHOWN].clone()
            tensors |= {f"gradient.{n}": p.grad.clone() for n, p in trained.items()}
        losses.append(loss.item())
        norms.append(clip_(model))
        optimizer.step()
    tensors |= {f"trained.{n}": p.detach().clone() for n, p in trained.items()}
    tensors |= dict(stream=stream.to(torch.int32), losses=torch.tensor(losses), grad_norms=torch.tensor(norms))
    save_file({n: t.contiguous() for n, t in tensors.items()}, path, metadata=dict(format="pt"))
    print(f"{path.stem}: {path.stat().st_size} bytes, {len(trained)} tensors, losses {losses[0]:.6f} -> {losses[-1]:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    goldens = pathlib.Path(__file__).resolve().parents[2] / "tests/model/goldens"
    parser.add_argument("--out", type=pathlib.Path, default=goldens / "adapters")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, (name, (family, settings)) in enumerate(CASES.items()):
        write_case(out / f"{name}.safetensors", goldens / "families" / family, settings, 11000 + 10 * i)


if __name__ == "__main__":
    main()
