#!/usr/bin/env python3
"""large_dataset.py PREFIX [SEQUENCES [LENGTH]]: token files as large as real ones, to see by hand how a run starts on them.

SEQUENCES documents (100 000 000) of LENGTH tokens (5000) of type uint16, all of them 0: PREFIX.bin is one hole of 1 TB, PREFIX.idx is written out (2 GB).
"""
import array
import os
import struct
import sys

BLOCK = 1 << 20


def write_values(file, code, values):
    for begin in range(0, len(values), BLOCK):
        array.array(code, values[begin:begin + BLOCK]).tofile(file)


def main():
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__.splitlines()[0])
    prefix = sys.argv[1]
    sequences, length = (int(text) for text in (sys.argv[2:] + ["100000000", "5000"][len(sys.argv) - 2:]))
    with open(prefix + ".bin", "wb") as file:
        os.ftruncate(file.fileno(), 2 * sequences * length)
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, sequences, sequences + 1))
        for begin in range(0, sequences, BLOCK):
            (array.array("i", [length]) * min(BLOCK, sequences - begin)).tofile(file)
        write_values(file, "q", range(0, 2 * length * sequences, 2 * length))
        write_values(file, "q", range(sequences + 1))


main()
