#!/usr/bin/env python3
"""What TRL computes when it learns from preferences, in fp32 on a CPU: a tiny family beside this script, random pairs of answers.

Needs `pip install trl==1.16.0 peft==0.21.2` beside requirements.txt: nothing else here does. Reads
tests/model/goldens/families/qwen2 and writes OUT (default tests/model/goldens/preferences.safetensors), see README.md:
  tokens i32[PAIRS, 2 ROW]        chosen answer behind its prompt in the first ROW, rejected one behind the same in the others
  lengths i32[PAIRS, 3]           tokens of the prompt, of the chosen and of the rejected answer
  CASE.initial.N f32              adapter N before step 1, of the case that has one
  CASE.losses, .grad_norms, .chosen, .rejected, .accuracies, .margins f32[STEPS]
                                  of each step of BATCH pairs; norms before clipping; means of rewards
TRL 1.16 has no label smoothing in its "sigmoid"; the conservative loss is a sum of "sigmoid" and "robust" there (weights below).
Its "sft" is a mean over the tokens of a device's batch, which is a pair here.
"""

import argparse
import pathlib
import tempfile

import datasets
import peft
import tokenizers
import torch
import transformers
import trl
from safetensors.torch import save_file

from family_goldens import VOCAB

STEPS, BATCH, ROW, PAIRS = 10, 4, 16, 20
SMOOTHING = 0.2

CASES = {
    "sigmoid": dict(loss_type=["sigmoid"], beta=0.5),
    "ipo": dict(loss_type=["ipo"], beta=0.3),
    "hinge": dict(loss_type=["hinge"], beta=0.5),
    "smoothed": dict(loss_type=["sigmoid", "robust"], beta=0.5, label_smoothing=SMOOTHING,
                     loss_weights=[2 * (1 - SMOOTHING), -(1 - 2 * SMOOTHING)]),
    "with_nll": dict(loss_type=["sigmoid", "sft"], beta=0.5, loss_weights=[1.0, 0.7]),
    "normalized": dict(loss_type=["sigmoid_norm"], beta=2.0),
    "lora": dict(loss_type=["sigmoid"], beta=0.5),
}


class Trainer(trl.DPOTrainer):
    """Takes pairs of ids as they are, in their order, and keeps the losses that the log would round."""

    def _prepare_dataset(self, dataset, *_):
        return dataset

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.seen.append(loss.item())
        return loss


def draw_pairs():
    generator = torch.Generator().manual_seed(12000)

    def draw(low, high, count=()):
        return torch.randint(low, high, count, generator=generator)

    rows = []
    for _ in range(PAIRS):
        prompt, chosen, rejected = (int(draw(2, 7)) for _ in range(3))
        first = draw(2, VOCAB, (prompt,)).tolist()
        rows.append(dict(prompt_ids=first, chosen_ids=draw(2, VOCAB, (chosen,)).tolist(),
                         rejected_ids=draw(2, VOCAB, (rejected + 2,)).tolist()))
    return rows


def tokenizer():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(i): i for i in range(VOCAB)}, unk_token="0"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1")


def train(base, rows, settings, adapter):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(12001)
    with tempfile.TemporaryDirectory() as folder:
        args = trl.DPOConfig(output_dir=folder, per_device_train_batch_size=1, gradient_accumulation_steps=BATCH, max_steps=STEPS,
                             learning_rate=3e-3, lr_scheduler_type="constant", weight_decay=0.0, adam_beta2=0.95, max_grad_norm=1.0,
                             optim="adamw_torch", bf16=False, use_cpu=True, gradient_checkpointing=False, logging_steps=1,
                             train_sampling_strategy="sequential", save_strategy="no", report_to="none", disable_tqdm=True,
                             **settings)
        trainer = Trainer(model=model, args=args, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer(),
                          peft_config=adapter)
        trainer.seen = []
        initial = {n.removeprefix("base_model.model.").replace(".default", ""): p.detach().clone()
                   for n, p in trainer.model.named_parameters() if p.requires_grad and adapter}
        trainer.train()
        log = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    # A step's loss is divided by the passes that accumulate.
    losses = torch.tensor(trainer.seen).view(STEPS, BATCH).sum(dim=1)
    assert max(abs(a - b["loss"]) for a, b in zip(losses.tolist(), log)) < 1e-3

    def column(key):
        return torch.tensor([entry[key] for entry in log])

    return initial, dict(losses=losses, grad_norms=column("grad_norm"), chosen=column("rewards/chosen"),
                         rejected=column("rewards/rejected"), accuracies=column("rewards/accuracies"),
                         margins=column("rewards/margins"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    goldens = pathlib.Path(__file__).resolve().parents[2] / "tests/model/goldens"
    parser.add_argument("--out", type=pathlib.Path, default=goldens / "preferences.safetensors")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rows = draw_pairs()
    tensors = dict(tokens=torch.zeros(PAIRS, 2 * ROW, dtype=torch.int32),
                   lengths=torch.tensor([[len(r["prompt_ids"]), len(r["chosen_ids"]), len(r["rejected_ids"])] for r in rows],
                                        dtype=torch.int32))
    for to, row in zip(tensors["tokens"], rows):
        for begin, answer in ((0, "chosen_ids"), (ROW, "rejected_ids")):
            ids = row["prompt_ids"] + row[answer]
            to[begin:begin + len(ids)] = torch.tensor(ids, dtype=torch.int32)
    for name, settings in CASES.items():
        adapter = peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules="all-linear") if name == "lora" else None
        initial, numbers = train(goldens / "families/qwen2", rows, settings, adapter)
        tensors |= {f"{name}.{key}": values for key, values in numbers.items()}
        tensors |= {f"{name}.initial.{key}": values for key, values in initial.items()}
        print(f"{name}: losses {numbers['losses'][0]:.6f} -> {numbers['losses'][-1]:.6f}, margin {numbers['margins'][-1]:.6f}")
    save_file({n: t.contiguous() for n, t in tensors.items()}, out, metadata=dict(format="pt"))
    print(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
