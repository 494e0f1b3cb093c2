#!/usr/bin/env python3
"""Writes tests/data/goldens/pieces.json: how Hugging Face's tokenizers library cuts texts by patterns (Split, "isolated"), and
tests/data/goldens/normal_forms.json: what its normalizers make of texts.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3 tiktoken==0.14.0 regex
    /tmp/venv/bin/python scripts/oracle/piece_goldens.py

pieces.json: `atoms`, of which `count` texts are drawn (random_texts() here and in tests/data/drawn_texts.h); `texts`; and a row for each
pattern: for `texts` (of the patterns that have scanners of their own) the ends of pieces in bytes, negative where a gap between
matches ends, and of the drawn texts the FNV-1a hash of all ends. Rows with `left_out` say how tiktoken cuts. It shows no pieces, so those of
the regex module become its vocabulary, and each must come out as one token. Where the module's newer Unicode cuts otherwise, a drawn
text is left out.
normal_forms.json: for each normalizer the hash of what it makes of code points and of the drawn texts, and some texts in full.
"""
import json
import pathlib

import regex
import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizers import Regex, normalizers, pre_tokenizers

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests/data/goldens"
COUNT = 2500

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"


def o200k(contractions, numbers):
    return (LEAD + UPPER + "*" + LOWER + "+" + contractions + "|" + LEAD + UPPER + "+" + LOWER + "*" + contractions + "|" + numbers +
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)


def cl100k(word, numbers, neither):
    return CONTRACTIONS + "|" + LEAD + word + "+|" + numbers + "| ?" + neither + r"+[\r\n]*|" + TAIL


DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" +
            TAIL)
KNOWN = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": cl100k(r"\p{L}", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]"),
    "qwen2": cl100k(r"\p{L}", r"\p{N}", r"[^\s\p{L}\p{N}]"),
    "qwen3.5": cl100k(r"[\p{L}\p{M}]", r"\p{N}", r"[^\s\p{L}\p{M}\p{N}]"),
    "o200k": o200k(CONTRACTIONS + "?", r"\p{N}{1,3}"),
    "tekken": o200k("", r"\p{N}"),
    "deepseek numbers": r"\p{N}{1,3}",
    "deepseek ideographs": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "deepseek words": DEEPSEEK,
    "deepseek words, plain ends of lines": DEEPSEEK.replace("\\r\\n", "\r\n"),
}

# As tiktoken spells them, which cuts white space at the end of a text otherwise.
TIKTOKEN = [
    r50k_pat_str,
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    KNOWN["o200k"],
]

# What the matcher knows, a construct each; in part patterns of other tokenizers.
OTHERS = [
    r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\p{N}+", r"\s+$", r"\s++$", r"[一-龥ࠀ-一가-퟿]+", r"\n| ?[\p{L}\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+",
    r" ?[^(\s|.,!?…。，、।۔،)]+", r"<\|startoftext\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++(?!\S)|\s+",
    r"\d{1,2}(?=\d*\s)", r"(?<=\p{L})\p{N}+|(?<!\p{L})\p{M}|\s", r"(?<=[a-z]|\r\n)[^a-z]", r"(?<![\s'])\S{2,3}?",
    r"(?>\s+)\S", r"a*+b|\S", r"(?:ab|a)(?:bc|c)?", r"(?:a|ab)+?c|\w", r"(?:\p{L}\p{M}*)+|\P{L}", r"\w+|[^\w\s]+", r"\W+", r"[^\w]+|[\w\r]+", r"\D+|\d",
    r"[^\S\r\n]+", r"^\s*\S|\S$", r"\A\S+|\S\z|\n\Z", r".", r".+", r"[^\p{L}]*", r"x*", r"(?=[A-Z])", r"(?i)it|[k-t]+", r"(?i:[^a-m\s]+)",
    r"\p{Lu}\p{Ll}*|\p{Lt}|\p{Lm}|\p{Lo}", r"\p{Mn}+|\p{Mc}|\p{Me}", r"\p{Nd}|\p{Nl}|\p{No}", r"\p{Pc}|\p{Pd}|\p{Ps}|\p{Pe}|\p{Pi}|\p{Pf}|\p{Po}+",
    r"\p{Sm}|\p{Sc}|\p{Sk}|\p{So}+", r"\p{Zs}+|\p{Zl}|\p{Zp}|\p{Cc}|\p{Cf}", r"\p{Co}|\p{Cn}+", r"\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+",
    r"\p{Latin}+|\p{Greek}+|\p{Cyrillic}+|\p{Arabic}+|\p{Hebrew}+|\p{Thai}+|\p{Devanagari}+", r"\p{^Letter}+", r"[\p{^L}&&\P{N}]+",
    r"[a-cx\-z]+|[+--]|[a\]]", r"[[a-m]&&[^e]]+|[^[a-z]\s]+", r"\x41|\x{e9}|\u00e9|[\x{4e00}-\x{4fff}]", r"a{2}|b{1,}|c{,2}d|s{0,1}t",
    r"(?:(?:a|b){2,3}|\s{2}){1,2}", r"(?:'(?:s|t))??\w", r"\.|\-|\'|\/|\t|\n|\r|\f", r"(?:|a)b|(?:c|)d", r"(a)(?:(b)|(c))*",
]

ATOMS = (
    " |  |   |\n|\r\n|\r|\n\n|\t|\u00a0|\u2003|\u3000|\u2028|\u0085|\u200b|\u180e|\u200d|\x1c|a|b|c|d|e|s|t|m|x|z|S|T|LL|A|Z|ab|abc|the|word|Word|"
    "WORD|isn|it|'|'s|'S|'t|'re|'VE|'ll|'lL|'d|'m|'\u017f|\u2019s|\u017f|\u212a|0|1|7|12|345|6789|\u00bd|\u0661|\u2167|\u00b2|.|,|!|?|;|:|-|--|_|"
    "/|//|\\|(|)|[|]|{|}|<|>|+|=|*|&|@|#|$|%|^|~|`|\"|\u2026|\u00ab|\u00bb|\u20ac|\u00a9|\u00e9|\u00c9|\u00df|\u01c5|\u02b0|\u00aa|e\u0301|\u0301|"
    "\u0327|\u0323|\u0345|\u093f|\u0903|\u20dd|\u4e2d|\u6587|\u3005|\u3042|\u30ab|\u30fb|\u30fc|\ud55c|\u1100|\u1161|\u11a8|\u0434\u0430|\u0414|"
    "\u03b1|\u0391|\u05d0|\u0628|\u0e01|\u0915|\u2460|\u24b6|\U0001f600|\U0001f468\u200d\U0001f469|\U0001f3fd|\ufe0f|\ue000|\u0378|\U00010400|"
    "\U00010428|\ufb01|\u212b|\uac00|\uf900|\u1e9b|\u0344|\u0958|\u00c0|\u1ea5").split("|")


class Draw:
    def __init__(self):
        self.state = 1

    def __call__(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def random_texts(count):
    draw, texts = Draw(), []
    for _ in range(count):
        parts = []
        for _ in range(1 + draw(24)):
            kind = draw(16)
            if kind == 0:
                c = draw(0x3400)
            elif kind == 1:
                c = draw(0x110000)
            else:
                parts.append(ATOMS[draw(len(ATOMS))])
                continue
            parts.append(chr(c) if not 0xD800 <= c < 0xE000 else "?")
        texts.append("".join(parts))
    return texts


def fnv(values, state=0xCBF29CE484222325):
    for value in values:
        state = ((state ^ (value % 2**64)) * 0x100000001B3) % 2**64
    return state


def cuts(pattern, texts):
    isolated = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    gaps = pre_tokenizers.Split(Regex(pattern), behavior="removed")
    result = []
    for text in texts:
        unmatched = {offsets for _, offsets in gaps.pre_tokenize_str(text)}
        bytes_before = [0]
        for ch in text:
            bytes_before.append(bytes_before[-1] + len(ch.encode()))
        result.append([(-1 if offsets in unmatched else 1) * bytes_before[offsets[1]] for _, offsets in isolated.pre_tokenize_str(text)])
    return result


def tiktoken_cuts(pattern, texts):
    """None for a text that the regex module cuts otherwise."""
    pieces = [[piece.encode() for piece in regex.findall(pattern, text)] for text in texts]
    vocabulary = dict.fromkeys([bytes([b]) for b in range(256)] + [piece for some in pieces for piece in some])
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(vocabulary)}, special_tokens={})
    result = []
    for text, some in zip(texts, pieces):
        tokens = [encoding.decode_single_token_bytes(i) for i in encoding.encode_ordinary(text)]
        ends = [sum(map(len, some[:i + 1])) for i in range(len(some))]
        result.append(ends if tokens == some else None)
    return result


def main():
    edges = [text for text in EDGES if text]
    drawn = random_texts(COUNT)
    rows = []
    for pattern in [*KNOWN.values(), *OTHERS]:
        row = {"pattern": pattern}
        if pattern in KNOWN.values():
            row["ends"] = cuts(pattern, edges)
        row["drawn"] = "%016x" % fnv(end for ends in cuts(pattern, drawn) for end in ends)
        rows.append(row)
    for pattern in TIKTOKEN:
        ends, of_drawn = tiktoken_cuts(pattern, edges), tiktoken_cuts(pattern, drawn)
        assert None not in ends
        left_out = [i for i, some in enumerate(of_drawn) if some is None]
        assert len(left_out) < COUNT / 50
        rows.append({"pattern": pattern, "ends": ends, "left_out": left_out,
                     "drawn": "%016x" % fnv(end for some in of_drawn if some for end in some)})
    lines = [json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows]
    head = '{"atoms":%s,\n"count":%d,\n"texts":%s,\n"rows":[\n' % (json.dumps(ATOMS), COUNT, json.dumps(edges))
    (GOLDENS / "pieces.json").write_text(head + ",\n".join(lines) + "\n]}\n")

    forms = {}
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        make = getattr(normalizers, name)().normalize_str
        every = [chr(c) for c in range(0x30000) if not 0xD800 <= c < 0xE000]  # beyond, none changes
        # Marks change places and join: each code point between some.
        around = ["a" + c + "\u0327\u0301" + c for c in every]
        state = 0xCBF29CE484222325
        for text in [*every, *around, *drawn]:
            state = fnv(make(text).encode(), state)
        forms[name] = {"hash": "%016x" % state, "texts": [make(text) for text in FORMED]}
    (GOLDENS / "normal_forms.json").write_text(json.dumps({"texts": FORMED, "forms": forms}, indent=0) + "\n")


FORMED = ["", "abc", "\u00c5\u212bA\u030a", "e\u0301\u0327", "e\u0327\u0301", "\ufb01\u00bd\u2167", "\uac01\u1100\u1161\u11a8", "\u0130I\u0131", "\u1e9b\u0323",
          "\u0344", "\u0958", "\u2126\u00b5", "\u3392\uff21", "a" + "\u0301" * 5, "\u03a3\u03c3\u03c2 \u03a3", "\U0001d54f", "\ufdfa", "\u32ff"]

EDGES = [
    " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\r\n", "\r", "\u00a0", "\u0085", "\u2028\u2029", "\u3000", "\u180e", "\u200b", "a", " a", "  a",
    "   a", "a ", "a  ", "a\n", "a \n", "a\n\nb", "a \n b", "a\u00a0b", "a\u00a0 b", " \u00a0b", "\u00a0\u00a0b", "a \t b", "\t\tx", "\n\tx", " \n \n x",
    "\n   ", "\r\n\r\n  a", "a\n\n \n", "0", " 0", "  0", "007", "1234567", "3.14159", "1,000,000", "x1y2", "\u00bd\u00b2\u2167", "\u0661\u0662\u0663\u0664",
    "'s", "'S", "''s", "' s", "it's", "it'S", "IT'S", "IT'LL go", "'re've'll'd'm't's", "'RE'Ve'lL'D'M'T", "'rev", "'lle", "'l", "'r", "'v", "'", "''",
    "\u2019s", "'\u017f", "x'\u017fy", "don't", "x'sy", "!'s", "'s's", " 's", "  's", " '", "a'", "\u00e9's", "1's", "'sABC", "...", " ...", " ...\n\n", "?!\r\n",
    "!\n/\n/x", "a/b//c", "//\n", "!!abc", "!abc", " !abc", "  !abc", ".a.b", "-\u0301a", "\u0301", "\u0301\u0301", "a\u0301b", " \u0301a", "1\u0301a", "\u0301A",
    "\u0301Ab", "A\u0301", "\u0301 ", "@user #tag", "HelloWorld", "helloWorld", "HTMLParser", "ABCdef", "ABC", "aB", "Ab", "\u01c5a", "\u01c5\u01c5", "\u02b0A",
    "A\u02b0B", "A\u3042B", "A\u3042Bc", "\u3042ABC", "\u4e2d\u6587ABC", "\u4e2d\u6587\u3002\u4e2d", "\u3053\u3093\u306b\u3061\u306f", "\u30fb\u30fc\u30ab",
    "\ud55c\uad6d\uc5b4 \ud55c", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\U0001f600\U0001f600", " \U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2603\ufe0f", "\u0378a", " \u0378",
    "\ue000\ue000 a", "\u200da", "\u200d\u200d", "\x00\x01", "\x1ca", "a\x00b", "\U00010d4a", "\U0001e4d0", "\U00011f04", "$5 (see) [1]", "a_b", "__init__(self)",
    "  if (x):\r\n    y=1", "http://a.b/c?d=e&f=g", "\u4e2d1\u4e2d12\u4e2d1234", "x" * 70, "X" * 70, " " * 70, "\u0301" * 70, "1" * 70, "!" * 70, "\n" * 70,
    "abcdefg", "abcdefgh", "abcdefghi", "abcdefg\u00e9", "abcdefgh\u00e9i", "abcdefg{", "abcdefg`", "ABCDEFG@[", "z{y|x}w", "a\u00e0\u00e1bcdefghij",
]

if __name__ == "__main__":
    main()
