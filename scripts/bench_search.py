"""Which configurations of PyTorch bench_torch.py tries, and in which order: knows nothing of PyTorch."""
import itertools
import json
import time

OUT_OF_MEMORY = "out of memory"


class Search:
    """Of one precision: what was tried, and what is to be tried next. A configuration is a mode of the compiler, an attention and a micro-batch."""

    def __init__(self, precision, modes, attentions, micro):
        self.precision, self.micro, self.tried = precision, micro, {}
        self.choices = list(itertools.product(modes, attentions))

    def best(self):
        good = [t for t in self.tried.values() if "failed" not in t]
        return max(good, key=lambda t: t["tokens_per_s"]) if good else None

    def may_work(self, mode, attention, micro):
        """Attention hardly changes what memory is needed; what failed for another reason fails with every micro-batch."""
        for (tried_mode, tried_attention, tried_micro), result in self.tried.items():
            failed = result.get("failed")
            if failed == OUT_OF_MEMORY and tried_mode == mode and tried_micro <= micro:
                return False
            if failed and failed != OUT_OF_MEMORY and (tried_mode, tried_attention) == (mode, attention):
                return False
        return True

    def left(self):
        """What is untried around the fastest, fewest changes first; before anything has worked, the largest micro-batch that may."""
        best = self.best()
        if best:
            at = (best["compile"], best["attention"], best["micro"])
            sizes = [micro for micro in (at[2], at[2] // 2, 2 * at[2]) if 1 <= micro <= self.micro]
        else:
            at = None
            sizes = [self.micro >> halvings for halvings in range(self.micro.bit_length())]
        near = [(*choice, micro) for micro in sizes for choice in self.choices]
        near = [c for c in near if c not in self.tried and self.may_work(*c)]
        return sorted(near, key=lambda c: sum(a != b for a, b in zip(c, at))) if at else near


def search(model, attempt, micro, minutes, most, modes, attentions, clock=time.time):
    """The fastest of each precision, as attempt(precision, mode, attention, micro) told of it. Prints what is tried and, after the minutes or the
    most attempts, what is left. Past them only a precision of which nothing has worked yet goes on."""
    start = clock()
    searches = [Search(precision, modes, attentions, micro) for precision in ("bf16", "autocast")]

    def goes_on(s):
        return s.left() and (s.best() is None or clock() - start < 60 * minutes and sum(len(s.tried) for s in searches) < most)

    while any(goes_on(s) for s in searches):
        for s in filter(goes_on, searches):
            choice = s.left()[0]
            s.tried[choice] = attempt(s.precision, *choice)
            print(json.dumps(s.tried[choice]), flush=True)
    for s in searches:
        for mode, attention, untried in s.left():
            print(json.dumps({"not_tried": model, "precision": s.precision, "compile": mode, "attention": attention, "micro": untried}), flush=True)
    return [s.best() for s in searches if s.best()]
