"""PyTorch's distributed checkpoints (DCP) as readers of a checkpoint: whole tensors in one process, and DTensors of two, which are
cut otherwise than what is stored. Part of checkpoint_readers.py."""
import importlib.util
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

RANKS = 2


class Model:
    """What load_weights() of the page asks of a model."""

    def __init__(self, state):
        self.state, self.loaded = state, None

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.loaded = state


def load_module(path):
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_equal(loaded, expected, what):
    assert set(loaded) == set(expected), f"{what}: {sorted(loaded)}, not {sorted(expected)}"
    for key, value in loaded.items():
        # Bits: of bf16 as f32, which has them all.
        a, b = value.to(torch.float32).contiguous().view(torch.int32), expected[key].contiguous().view(torch.int32)
        assert a.shape == b.shape and torch.equal(a, b), f"{what}: {key} differs"


def read_whole(folder):
    """All that DCP finds in a folder of files, as it says what there is."""
    found = HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata
    state = {key: torch.full(tuple(tensor.size), -1.0, dtype=tensor.properties.dtype) for key, tensor in found.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
    return state


def check_sharded(rank, folder, weights, page, rendezvous):
    """One of RANKS processes, each of which has a part of every tensor."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for dim in (0, 1, None):  # rows, columns, whole on each
        place = {key: Replicate() if dim is None or dim >= value.dim() else Shard(dim) for key, value in weights.items()}
        model = Model({key: distribute_tensor(torch.full_like(value, -1.0), mesh, [place[key]]) for key, value in weights.items()})
        load_module(page).load_weights(model, folder)
        expected = {key: distribute_tensor(value, mesh, [place[key]]).to_local() for key, value in weights.items()}
        loaded = {key: value.to_local() for key, value in model.loaded.items()}
        require_equal(loaded, expected, f"rank {rank}, cut in dimension {dim}")
    dist.destroy_process_group()


def check(folder, tensors, page):
    """`tensors`: what the page's own reader read, f32. `page`: the file with load_weights()."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    expected = {key: torch.from_numpy(values) for key, values in tensors.items()}
    weights = {key: value for key, value in expected.items() if "/" not in key}
    require_equal(read_whole(f"{folder}/weights"), weights, "weights/")
    require_equal(read_whole(f"{folder}/optim"), {key: expected[key] for key in expected if "/" in key}, "optim/")
    model = Model({key: torch.full_like(value, -1.0) for key, value in weights.items()})
    load_module(page).load_weights(model, folder)
    require_equal(model.loaded, weights, "the page's load_weights()")
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(check_sharded, (folder, weights, page, os.path.join(place, "rendezvous")), nprocs=RANKS)
