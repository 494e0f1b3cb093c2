"""Packs tables of code points as core/packed_numbers.h reads them."""
import itertools


def number(value):
    assert value >= 0
    if value < 66:
        return chr(ord("0") + value)
    first, digits = (66, 1) if value < 8 * 79 else (74, 2) if value < 4 * 79**2 else (78, 4)
    return "".join(chr(ord("0") + value // 79**i % 79 + (first if i == digits else 0)) for i in range(digits, -1, -1))


def signed(value):
    return number(2 * value if value >= 0 else -2 * value - 1)


def declaration(kind, name, text, width=132):
    """constexpr KIND NAME(R"(TEXT)");"""
    line, lines = f'constexpr {kind} {name}(R"(', []
    while len(line) + len(text) + 4 > width:
        part = min(width - len(line), len(text) - 1)
        lines.append(line + text[:part])
        line, text = "", text[part:]
    return lines + [line + text + ')");']


def run_lengths(name, values):
    text, before = "", [0, 0]
    for value, run in itertools.groupby(values):
        more = len(list(run)) - 1
        text += number((value ^ before[-2]) * 2 + (more > 0)) + (number(more - 1) if more else "")
        before.append(value)
    return declaration(f"std::array<unsigned char, {len(values)}>", f"{name} = run_lengths<{len(values)}>", text)


def bounds(name, test):
    """Where runs of the code points that pass `test` begin and end, in turn."""
    found, inside = [], False
    for c in range(0x110001):
        if (c < 0x110000 and test(c)) != inside:
            inside = not inside
            found.append(c)
    text = "".join(number(c - before) for before, c in zip([0] + found, found))
    return declaration("auto", f"{name} = bounds<{len(found)}>", text)


def runs(name, value_of):
    """`value_of` maps code points to what is not 0: runs of one value, one beside the other or every second one."""
    found = []
    for c, value in sorted(value_of.items()):
        if found and found[-1][3] == value:
            first, last, step, _ = found[-1]
            if c - last == step or (first == last and c - last <= 2):
                found[-1] = (first, c, c - last, value)
                continue
        found.append((c, c, 1, value))
    lasts = [0] + [last for _, last, _, _ in found]
    text = "".join(number(4 * (first - before)) + signed(value) if first == last else
                   number(4 * (first - before) + step) + signed(value) + number((last - first) // step - 1)
                   for before, (first, last, step, value) in zip(lasts, found))
    return declaration("auto", f"{name} = code_point_runs<{len(found)}>", text)


def texts(name, text_of):
    """`text_of` maps code points to those that they become, a list."""
    before, last, steps = [0] * 32, 0, []
    for c, to in sorted(text_of.items()):
        steps.append((c - last, *(value - old for value, old in zip(to, before))))
        before[:len(to)], last = to, c
    text, size = "", sum(map(len, text_of.values()))
    for (more, *values), run in itertools.groupby(steps):
        times = len(list(run))
        text += number(4 * more + 2 * (times > 1) + (len(values) > 1)) + (number(len(values)) if len(values) > 1 else "")
        text += "".join(map(signed, values)) + (number(times - 2) if times > 1 else "")
    return declaration(f"CodePointTexts<{len(text_of)}, {size}>", name, text)
