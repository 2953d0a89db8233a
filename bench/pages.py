"""What the scripts that make pages of docs/results share: records, tables, and the line that says where figures are from."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


OPERATORS = {"rope_append": "rope_kv_write", "latent_append": "latent_kv_write"}  # by their names in older records


def parse_record(text):
    for old, new in OPERATORS.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return json.loads(text)


def records_of(folder, pattern):
    return [(path.name, parse_record(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob(pattern))]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("--:" for _ in head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def command(record):
    """As a user would type it: without the folder of the program and the file of the record."""
    words = ["heddle", *record["command"][1:]]
    if "--json" in words:
        at = words.index("--json")
        has_file = at + 1 < len(words) and not words[at + 1].startswith("--")
        del words[at:at + 1 + has_file]
    return " ".join(words)


def source(name, record):
    return f"From `{name}`: commit {record['commit']}, {record['machine']['key'].rsplit('; ', 1)[1]}"


def text_of(page):
    return "\n".join(page).rstrip() + "\n"


def write(page, path):
    path.write_text(text_of(page), encoding="utf-8")
