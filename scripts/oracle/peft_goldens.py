#!/usr/bin/env python3
"""Adapters as PEFT saves them, to the families' folders, and what PEFT and PyTorch compute with them, in fp32, on a CPU.

Writes OUT/<case>/ (default tests/infer/peft), see README.md:
  adapter_config.json, adapter_model.safetensors   by save_pretrained
  golden.json   the base's family; ids, and the loss of each but the first by the model with its adapter, which is not merged; and of
                every tensor that merge_and_unload() changes or replaces: its sum, and some of its values by their numbers
"""

import argparse
import json
import pathlib

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

CASES = {
    "llama_dora": ("llama", dict(r=3, lora_alpha=7, target_modules=["q_proj", "v_proj", "down_proj"], use_dora=True)),
    "qwen2_patterns": ("qwen2", dict(r=4, lora_alpha=8, target_modules=r".*\.(q_proj|k_proj|o_proj|up_proj)", use_rslora=True,
                                     rank_pattern={"q_proj": 2, "^model.layers.1.self_attn.k_proj": 5},
                                     alpha_pattern={"layers.1.self_attn.q_proj": 20}, bias="lora_only")),
    "gpt2_all": ("gpt2", dict(r=2, lora_alpha=6, target_modules="all-linear", fan_in_fan_out=True, bias="all")),
    "gpt2_dora": ("gpt2", dict(r=2, lora_alpha=6, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True, use_dora=True)),
    "phi3_saved": ("phi3", dict(r=2, lora_alpha=8, target_modules=["qkv_proj", "gate_up_proj"], layers_to_transform=[1],
                                exclude_modules=["layers.1.mlp.gate_up_proj"], modules_to_save=["lm_head", "input_layernorm"])),
    "qwen2_tied": ("qwen2", dict(r=2, lora_alpha=8, target_modules=["v_proj"], modules_to_save=["embed_tokens"],
                                 ensure_weight_tying=True)),
    "llama_more_tokens": ("llama", dict(r=2, lora_alpha=8, target_modules=["v_proj"], modules_to_save=["embed_tokens", "lm_head"])),
}
MORE_TOKENS = {"llama_more_tokens": 57}  # with which the model is resized before it gets the adapter


def main():
    parser = argparse.ArgumentParser()
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/infer/peft")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    for seed, (case, (family, options)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        vocabulary = MORE_TOKENS.get(case, 53)

        def load():
            folder = root / "tests/model/goldens/families" / family
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
            if case in MORE_TOKENS:
                model.resize_token_embeddings(vocabulary, mean_resizing=False)
            return model

        model = get_peft_model(load(), LoraConfig(task_type="CAUSAL_LM", **options))
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data.add_(torch.randn_like(parameter) * 0.1)
        model.peft_config["default"].base_model_name_or_path = family
        folder = out / case
        model.save_pretrained(folder)
        (folder / "README.md").unlink()
        tuned = PeftModel.from_pretrained(load(), folder).eval()
        ids = [(7 * i + 3) % vocabulary for i in range(14)]
        with torch.no_grad():
            logits = tuned(torch.tensor([ids])).logits[0, :-1].double()
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        tuned = tuned.merge_and_unload()
        before, merged = load().state_dict(), tuned.state_dict()
        changed = {}
        for name, values in merged.items():
            is_copy = name == "lm_head.weight" and tuned.config.tie_word_embeddings
            if not is_copy and not torch.equal(values, before[name]):
                flat = values.flatten().double()
                at = sorted({0, len(flat) // 3, len(flat) // 2 + 1, len(flat) - 1})
                changed[name] = {"sum": float(flat.sum()), "values": {str(i): float(flat[i]) for i in at}}
        golden = {"base": family, "ids": ids, "losses": losses.tolist(), "merged": changed}
        (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
        print(case, len(changed), "tensors")


if __name__ == "__main__":
    main()
