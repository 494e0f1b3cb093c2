#!/usr/bin/env python3
"""How far fp32 alone moves adapters: LoRA on q_proj of a tiny Llama learns ten AdamW steps in fp32 and, from the same values and
samples, in fp64. Prints |fp32 - fp64| / |fp64 - before| of A and B over the seeds 0 to SEEDS - 1 (argument, default 40). Needs peft
0.21.2."""

import copy
import sys

import peft
import torch
import transformers

from make_goldens import clip_, optimizer_of

VOCAB, BATCH, SEQ, STEPS = 500, 6, 16, 10


def trained(model, stream):
    parameters = torch.nn.ParameterList(p for p in model.parameters() if p.requires_grad)
    optimizer = optimizer_of(parameters)
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=stream[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), stream[:, 1:].flatten()).backward()
        clip_(parameters)
        optimizer.step()
    return [p.detach().double() for p in parameters]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        attn_implementation="eager"))
    spread = []
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
        torch.manual_seed(seed)
        model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"]))
        stream = torch.randint(0, VOCAB, (BATCH, SEQ + 1), generator=torch.Generator().manual_seed(seed))
        before = [p.detach().double() for p in model.parameters() if p.requires_grad]
        wide = trained(copy.deepcopy(model).double(), stream)
        spread += [((n - w).norm() / (w - b).norm()).item() for n, w, b in zip(trained(model, stream), wide, before)]
    spread.sort()
    print(f"{len(spread)} matrices: median {spread[len(spread) // 2]:.1e}, largest {spread[-1]:.1e}, "
          f"{sum(s > 1e-4 for s in spread)} above 1e-4, {sum(s > 1e-3 for s in spread)} above 1e-3")


if __name__ == "__main__":
    main()
