#!/usr/bin/env python3
"""Random bounded JSON schemas against the package jsonschema (PyPI), on the demo model or another one.

Each schema constrains one answer of a `heddle serve` of its own, greedy and at temperature 1: half of them chats with
response_format, half completions with guided_json, and half of each streamed. Every answer that ends with `stop` must
validate, and at least 99 % must end so. Prints one line per run and the first failures; exits 1 after one.

    python3 tools/check_schemas.py build/release/apps/cli/heddle assets/demo-llama
"""
import argparse
import concurrent.futures
import json
import random
import sys
import urllib.error
import urllib.request

import jsonschema

from stress_server import Server

FORMATS = ["date", "date-time", "uuid", "ipv4"]
PATTERNS = ["^[a-z]{2,8}$", "^[A-Z][a-z]{0,6}( [A-Z][a-z]{0,6})?$", "^(red|green|blue)$", r"^\d{3}-\d{4}$", r"^#[0-9a-fA-F]{6}$"]
WORDS = ["name", "age", "color", "size", "tags", "id", "friend", "where", "it's", 'a "b"', "caf\u00e9", "x/y", "n~1"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.definitions = {}

    def string(self):
        choice = self.random.randrange(4)
        if choice == 0:
            return {"type": "string", "pattern": self.random.choice(PATTERNS)}
        if choice == 1:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        least = self.random.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randrange(16)}

    def integer(self):
        schema = {"type": "integer"}
        if self.random.random() < 0.7:
            schema["minimum"] = self.random.randint(-10**6, 10**3)
        if self.random.random() < 0.7:
            schema["maximum"] = self.random.randint(10**3, 10**9)
        return schema

    def number(self):
        schema = {"type": "number"}
        if self.random.random() < 0.5:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = round(self.random.uniform(-100, 10), 3)
        if self.random.random() < 0.5:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = round(self.random.uniform(11, 1000), 2)
        return schema

    def values(self):
        values = [self.random.choice(WORDS), self.random.randint(-5, 50), None, True, [1, "a"], {"k": 0.5}]
        return {"const": self.random.choice(values)} if self.random.random() < 0.3 else {"enum": self.random.sample(values, 3)}

    def array(self, depth):
        if self.random.random() < 0.3:
            prefix = [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]
            return {"type": "array", "prefixItems": prefix, "items": False, "minItems": self.random.randint(0, len(prefix))}
        least = self.random.randrange(3)
        return {"type": "array", "items": self.schema(depth - 1), "minItems": least, "maxItems": least + self.random.randrange(3)}

    def object(self, depth):
        names = self.random.sample(WORDS, self.random.randrange(5))
        schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        schema["required"] = [name for name in names if self.random.random() < 0.6]
        if self.random.random() < 0.5:
            schema["additionalProperties"] = False
        return schema

    def combination(self, depth):
        choice = self.random.randrange(4)
        if choice == 0:
            return {"oneOf": [{"type": "null"}, self.string(), self.integer()]}
        if choice == 1:
            one = {"type": "object", "properties": {"kind": {"const": "one"}, "v": self.schema(depth - 1)}, "required": ["kind"]}
            two = {"type": "object", "properties": {"kind": {"const": "two"}}, "required": ["kind"]}
            return {"oneOf": [one, two]}
        if choice == 2:
            base = {"type": "object", "properties": {"id": self.integer()}, "required": ["id"]}
            return {"allOf": [base, {"properties": {"name": self.string()}}]}
        return {"anyOf": [self.schema(depth - 1), self.schema(depth - 1)]}

    def reference(self, depth):
        name = f"d{len(self.definitions)}"
        self.definitions[name] = None
        self.definitions[name] = self.schema(depth - 1)
        return {"$ref": f"#/$defs/{name}"}

    def schema(self, depth):
        makers = [self.string, self.integer, self.number, self.values, lambda: {"type": self.random.choice(["null", "boolean"])}]
        if depth > 0:
            makers += [lambda: self.array(depth), lambda: self.object(depth)] * 2
            makers += [lambda: self.combination(depth), lambda: self.reference(depth)]
        return self.random.choice(makers)()

    def whole(self):
        schema = self.schema(2) if self.random.random() < 0.3 else self.object(2)
        return {**schema, "$defs": self.definitions} if self.definitions else schema


def body_of(index, schema, arguments, temperature):
    """The route and body of a schema's request: chats and completions, whole and streamed, by its index."""
    body = {"max_tokens": arguments.max_tokens, "temperature": temperature, "seed": arguments.seed + index,
            "stream": index % 4 >= 2}
    if index % 2 == 0:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": "Tell me a story."}],
                                        "response_format": form}
    return "/v1/completions", {**body, "prompt": "Once upon a time", "guided_json": schema}


def text_of(choice):
    return choice["text"] if "text" in choice else choice.get("message", choice.get("delta")).get("content") or ""


def ask(port, path, body):
    """The text of the answer and its finish_reason; an error's text and None."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            data = reply.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}", None
    if not body["stream"]:
        (choice,) = json.loads(data)["choices"]
        return text_of(choice), choice["finish_reason"]
    *events, done = [line.removeprefix("data: ") for line in data.split("\n\n") if line]
    choices = [json.loads(event).get("choices", [{}])[0] for event in events]
    if done != "[DONE]" or not all(choices):
        return data, None
    return "".join(text_of(choice) for choice in choices), choices[-1]["finish_reason"]


def run(port, arguments, schemas, temperature):
    def one(numbered):
        return ask(port, *body_of(*numbered, arguments, temperature))

    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as clients:
        return list(clients.map(one, enumerate(schemas)))


def judge(schema, answer):
    """None: right. Else what is wrong."""
    text, reason = answer
    if reason is None:
        return text
    if reason != "stop":
        return None
    try:
        value = json.loads(text)
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
    except (ValueError, jsonschema.ValidationError) as error:
        return str(error).splitlines()[0]
    return None


def check(port, arguments):
    schemas = [Maker(arguments.seed * 10**6 + i).whole() for i in range(arguments.schemas)]
    good = True
    for temperature in (0, 1):
        answers = run(port, arguments, schemas, temperature)
        wrong = [(schema, answer, fault) for schema, answer in zip(schemas, answers) if (fault := judge(schema, answer))]
        ended = sum(reason == "stop" for _, reason in answers)
        print(f"temperature {temperature}: {len(answers)} answers, {ended} end with stop, {len(wrong)} are wrong")
        for schema, answer, fault in wrong[:5]:
            print(f"  {json.dumps(schema)}\n  {answer[0]!r}\n  {fault}")
        good = good and not wrong and ended >= 0.99 * len(answers)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=480)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    server = Server(arguments, [])
    try:
        good = check(server.port, arguments)
        status = server.stop()
    finally:
        server.process.kill()
    sys.exit(0 if good and status == 0 else 1)


if __name__ == "__main__":
    main()
