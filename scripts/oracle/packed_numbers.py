"""Packs tables of code points as core/packed_numbers.h reads them."""


def number(value):
    assert value >= 0
    text = ""
    while value >= 32:
        text += chr(ord("0") + 32 + value % 32)
        value //= 32
    return text + chr(ord("0") + value)


def signed(value):
    return number(2 * value if value >= 0 else -2 * value - 1)


def declaration(kind, name, text, width=132):
    """constexpr KIND NAME(R"(TEXT)");"""
    line, lines = f'constexpr {kind} {name}(R"(', []
    while len(line) + len(text) + 4 > width:
        part = max(width - len(line), 0)
        lines.append(line + text[:part])
        line, text = "", text[part:]
    return lines + [line + text + ')");']


def run_lengths(name, values):
    pairs = []
    for value in values:
        if pairs and pairs[-1][0] == value:
            pairs[-1][1] += 1
        else:
            pairs.append([value, 0])
    text = "".join(number(value) + number(more) for value, more in pairs)
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
    text = "".join(number(first - before) + number(step) + number((last - first) // step) + signed(value)
                   for before, (first, last, step, value) in zip(lasts, found))
    return declaration("auto", f"{name} = code_point_runs<{len(found)}>", text)


def texts(name, text_of):
    """`text_of` maps code points to those that they become, a list."""
    text, before, last, size = "", [0] * 32, 0, 0
    for c, to in sorted(text_of.items()):
        head = 2 * (c - last)
        text += number(head) if len(to) == 1 else number(head + 1) + number(len(to))
        text += "".join(signed(value - before[i]) for i, value in enumerate(to))
        before[:len(to)], last, size = to, c, size + len(to)
    return declaration(f"CodePointTexts<{len(text_of)}, {size}>", name, text)
