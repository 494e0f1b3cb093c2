"""checkpoint_readers.py numpy|torch PLACE ONE MANY: compares readers of the checkpoints ONE and MANY, which have equal weights; ONE
has one file of whole tensors. PLACE/example_1.py is the reader that docs/checkpoints.md shows, example_2.py how a user of PyTorch loads
the weights, PLACE/shown what `trident ckpt show` says of MANY. Bit by bit, except norms, which are printed with six digits."""
import glob
import importlib.util
import json
import os
import re
import sys

import numpy as np
import safetensors


def require(condition, *what):
    if not condition:
        sys.exit("checkpoint_readers.py: " + " ".join(map(str, what)))


def load_module(path):
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_f32(data, dtype):
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    require(dtype == "F32", "a tensor of", dtype)
    return np.frombuffer(data, "<f4")


def boxes_of(path):
    """Each tensor of a file as safetensors itself understands it: key, values, place."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        keys = set(file.keys())
        f32 = {key: file.get_tensor(key) for key in keys if file.get_slice(key).get_dtype() == "F32"}
    require(metadata["format"] == "pt" and metadata["DCP_VERSION"] == "1.0", path, "has the metadata", metadata)
    offsets = json.loads(metadata["DCP_SHARDING_INFO"])
    require(set(offsets) == keys, path, "has places of", sorted(offsets), "and tensors", sorted(keys))
    with open(path, "rb") as file:
        stored = safetensors.deserialize(file.read())
    require({key for key, _ in stored} == keys, path, "has other tensors read in the other way")
    for key, box in stored:
        values = as_f32(box["data"], box["dtype"]).reshape(box["shape"])
        require(key not in f32 or f32[key].tobytes() == values.tobytes(), key, "differs by how it is read")
        yield key, values, tuple(slice(o, o + n) for o, n in zip(offsets[key]["saved_offsets"], box["shape"], strict=True))


def assembled(folder, shapes):
    """All tensors from safetensors' view of every file, and the largest number of boxes that one key has in a rank's files."""
    tensors, times, boxes = {}, {}, {}
    for path in sorted(glob.glob(f"{folder}/*/*.safetensors")):
        for key, values, place in boxes_of(path):
            shape = shapes[key.rpartition("/")[2]]
            tensors.setdefault(key, np.zeros(shape, "<f4"))[place] = values
            times.setdefault(key, np.zeros(shape, int))[place] += 1
            rank = path.rpartition("-")[0], key
            boxes[rank] = boxes.get(rank, 0) + 1
    for key, count in times.items():
        require((count == 1).all(), key, "has elements that are stored", sorted(set(count.flatten().tolist())), "times")
    return tensors, max(boxes.values())


def require_equal(a, b, what):
    require(set(a) == set(b), what, "have the tensors", sorted(a), "and", sorted(b))
    for key in a:
        require(a[key].shape == b[key].shape and a[key].tobytes() == b[key].tobytes(), what, "differ in", key)


def check_shown(path, weights):
    """What `trident ckpt show` printed, by name: shape and norm."""
    with open(path, encoding="utf-8") as file:
        rows = re.findall(r"^  (\S+) +\[([\d,]*)\] +(f32|bf16) +(\S+)$", file.read(), re.MULTILINE)
    require({name for name, *_ in rows} == set(weights), path, "lists", [name for name, *_ in rows])
    for name, shape, _, norm in rows:
        expected = np.linalg.norm(weights[name].astype("f8"))
        require(tuple(map(int, shape.split(","))) == weights[name].shape, name, "is shown as", shape)
        require(abs(float(norm) - expected) <= 1e-5 * expected, name, "is shown with the norm", norm, "and has", expected)


def main(kind, place, one, many):
    example = load_module(f"{place}/example_1.py")
    manifest, tensors = example.read_checkpoint(many)
    shapes = {tensor["name"]: tensor["shape"] for tensor in manifest["tensors"]}
    by_safetensors, most_boxes = assembled(many, shapes)
    require(most_boxes == 3, "a rank has at most", most_boxes, "boxes of a tensor, not three: other sizes must be chosen")
    require_equal(tensors, by_safetensors, "the page's reader and safetensors")
    states = [state + "/" for state in manifest["optimizer_states"]] + ["master/"] * (manifest["weights"] != "F32")
    require(set(tensors) == {prefix + name for prefix in ["", *states] for name in shapes}, "there are", sorted(tensors))

    def same(values):  # of any layout; what the optimizer has are sums whose order depends on it
        return {key: value for key, value in values.items() if not key.startswith("exp_avg")}

    require_equal(same(tensors), same(example.read_checkpoint(one)[1]), "the two layouts")
    require(len(os.listdir(f"{one}/weights")) == 1, one, "has more than one file of weights")
    for name in shapes:
        require(np.count_nonzero(tensors["exp_avg/" + name]) > 0, name, "has no gradient")
    check_shown(f"{place}/shown", {name: tensors[name] for name in shapes})
    if kind == "torch":
        import checkpoint_readers_torch
        checkpoint_readers_torch.check(many, tensors, f"{place}/example_2.py")
    print(f"{len(tensors)} tensors of {os.path.basename(many)} in {manifest['weights']}: {kind}")


if __name__ == "__main__":
    main(*sys.argv[1:])
