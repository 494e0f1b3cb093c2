#!/usr/bin/env python3
"""Renews what tests of chat templates compare with: Jinja2 3.1.6 with Hugging Face's settings, from transformers 5.23.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    /tmp/venv/bin/python scripts/oracle/chat_goldens.py [FOLDER]

tests/data/goldens/chat.jsonl: the first line has what every template sees, each further one is [template, text, spans], where text is
null if Jinja refuses and spans are the bytes in {% generation %}, neighbours joined. To add a case, add a line ["template"] and run this.

With FOLDER, a chat_templates of trl (scripts/oracle/fetch_chat_templates.sh): tests/data/goldens/chat_templates.txt, a line for each
template: its name, then FNV-1a of it, then FNV-1a of what it makes of each line of chat_conversations.jsonl, or "refused". Spans follow
the text as " BEGIN-END".
"""
import datetime
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as utils

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests/data/goldens"


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 29, 13, 5, 0)


utils.datetime = FixedTime


def render(template, case):
    """The text and the spans of bytes, or None."""
    try:
        # As apply_chat_template does it.
        messages = [{key: value for key, value in message.items() if value is not None} for message in case["messages"]]
        [text], [indices] = utils.render_jinja_template(
            [messages], tools=case.get("tools"), chat_template=template, return_assistant_tokens_mask=True,
            add_generation_prompt=case.get("add_generation_prompt", False), **case.get("special", {}), **case.get("variables", {}))
    except Exception:
        return None
    spans = []
    for begin, end in indices:
        begin, end = len(text[:begin].encode()), len(text[:end].encode())
        if spans and spans[-1][1] == begin:
            spans[-1][1] = end
        elif begin < end:
            spans.append([begin, end])
    return text, spans


def fnv1a(data):
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"


def lines_of(name):
    return [json.loads(line) for line in (GOLDENS / name).read_text().split("\n")[:-1]]


context, *cases = lines_of("chat.jsonl")
out = [context]
for template, *_ in cases:
    rendered = render(template, context)
    out.append([template, None] if rendered is None else [template, *rendered])
(GOLDENS / "chat.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in out))

if len(sys.argv) > 1:
    rows = []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        row = [path.name, fnv1a(path.read_bytes())]
        for conversation in lines_of("chat_conversations.jsonl"):
            rendered = render(path.read_text(), {**conversation, "special": context["special"]})
            row.append("refused" if rendered is None else
                       fnv1a((rendered[0] + "".join(f" {begin}-{end}" for begin, end in rendered[1])).encode()))
        rows.append(" ".join(row) + "\n")
    (GOLDENS / "chat_templates.txt").write_text("".join(rows))
