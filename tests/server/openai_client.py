#!/usr/bin/env python3
"""Runs the official openai client against `heddle serve`. Usage: openai_client.py HEDDLE MODEL

Exit status 77 where the client is not installed (tools/requirements-server.txt), for ctest to skip.
"""
import asyncio
import json
import signal
import subprocess
import sys

try:
    import openai
except ImportError:
    print("skipped: no openai here; see tools/requirements-server.txt")
    sys.exit(77)


def completions(client, model):
    kwargs = dict(model=model, prompt="Once upon a time", max_tokens=16, temperature=0.8, seed=3)
    whole = client.completions.create(**kwargs)
    assert whole.usage.completion_tokens <= 16 and whole.choices[0].text, whole
    stream = client.completions.create(stream=True, stream_options={"include_usage": True}, **kwargs)
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    scored = client.completions.create(model=model, prompt=[10, 11, 12], max_tokens=1, echo=True, logprobs=2)
    assert len(scored.choices[0].logprobs.token_logprobs) == 4
    many = client.completions.create(model=model, prompt=["a", "b"], n=2, max_tokens=4, temperature=1, seed=1)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    biased = client.completions.create(model=model, prompt="a", max_tokens=3, logit_bias={"300": 100})
    assert biased.choices[0].finish_reason == "length"


def chats(client, model):
    messages = [{"role": "user", "content": "Tell me a story."}]
    whole = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=16, logprobs=True,
                                           top_logprobs=2)
    assert whole.choices[0].message.role == "assistant"
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    stream = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=16, stream=True)
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == whole.choices[0].message.content


def forced_calls(client, model):
    """Calls that tool_choice requires, whole and streamed."""
    number = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"],
              "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}
    tools = [{"type": "function", "function": {"name": "count", "parameters": number}},
             {"type": "function", "function": {"name": "now"}}]
    for choice in ("required", {"type": "function", "function": {"name": "count"}}):
        kwargs = dict(model=model, messages=[{"role": "user", "content": "Hello"}], tools=tools, tool_choice=choice,
                      parallel_tool_calls=False, max_tokens=200)
        whole = client.chat.completions.create(**kwargs).choices[0]
        (call,) = whole.message.tool_calls
        assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
        assert call.function.name in ("count", "now") if choice == "required" else call.function.name == "count"
        arguments = json.loads(call.function.arguments)
        assert arguments == {} if call.function.name == "now" else 0 <= arguments["a"] <= 99
        name, pieces = None, []
        for chunk in client.chat.completions.create(stream=True, **kwargs):
            for part in chunk.choices[0].delta.tool_calls or []:
                assert part.index == 0 and (part.id is None) == (name is not None)
                name = name or part.function.name
                pieces.append(part.function.arguments)
        assert name == call.function.name and "".join(pieces) == call.function.arguments


def errors(client, model):
    for call, error in [
        (lambda: client.completions.create(model="other", prompt="a"), openai.NotFoundError),
        (lambda: client.completions.create(model=model, prompt="a", temperature=-1), openai.BadRequestError),
        (lambda: client.embeddings.create(model=model, input="a"), openai.InternalServerError),
    ]:
        try:
            call()
        except error as caught:
            assert caught.body["message"], caught
        else:
            raise AssertionError("no error")
    assert client.models.list().data[0].id == model and client.models.retrieve(model).id == model


async def at_once(base_url, model, count):
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)

    async def one(seed):
        answer = await client.completions.create(model=model, prompt="Once upon a time", max_tokens=12, temperature=1,
                                                 seed=seed % 4)
        return seed % 4, answer.choices[0].text

    texts = {}
    for seed, text in await asyncio.gather(*[one(seed) for seed in range(count)]):
        assert texts.setdefault(seed, text) == text, "an answer depends on others"


def main():
    heddle, model = sys.argv[1:3]
    server = subprocess.Popen([heddle, "serve", model, "--port", "0", "--threads", "2"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()  # "heddle: serving NAME at http://..."
        name, address = line.split()[2], line.split()[4]
        client = openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=8)  # 503 while it loads
        completions(client, name)
        chats(client, name)
        forced_calls(client, name)
        client = client.with_options(max_retries=0)
        errors(client, name)
        asyncio.run(at_once(address + "/v1", name, 32))
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=40) == 0, "the server did not end well"
        print("the openai client got what it asked for")
    finally:
        server.kill()


if __name__ == "__main__":
    main()
