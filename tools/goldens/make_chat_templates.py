#!/usr/bin/env python3
"""Generates tests/data/chat_template: results of jinja2, configured by transformers' own function, for templates and expressions.

Pinned: transformers 5.17, jinja2 3.1.6. Run again: make_chat_templates.py. The templates are written for this file, each in the manner of a
family: the same constructs, other words.

make_chat_templates.py --compare build/cpu/tests/text/chat_template/render_chat_templates [--count 20000] [--seed 1] writes nothing: it makes
that many random expressions and compares both sides (build the target render_chat_templates first).
"""

import argparse
import datetime
import json
import pathlib
import random
import subprocess

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/data/chat_template"


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 34, 56)


chat_template_utils.datetime = FixedClock

TEMPLATES = {}

TEMPLATES["chatml"] = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe useful.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

TEMPLATES["llama2"] = """{%- if messages[0]['role'] == 'system' -%}
    {%- set rest = messages[1:] -%}
    {%- set system = messages[0]['content'] -%}
{%- else -%}
    {%- set rest = messages -%}
    {%- set system = false -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must take turns: user, assistant, user, assistant ...') }}
    {%- endif -%}
    {%- if loop.index0 == 0 and system != false -%}
        {%- set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] -%}
    {%- else -%}
        {%- set content = message['content'] -%}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {%- elif message['role'] == 'system' -%}
        {{ '<<SYS>>\\n' + content.strip() + '\\n<</SYS>>\\n\\n' }}
    {%- elif message['role'] == 'assistant' -%}
        {{ ' '  + content.strip() + ' ' + eos_token }}
    {%- endif -%}
{%- endfor -%}
"""

TEMPLATES["llama3"] = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

TEMPLATES["llama3_tools"] = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message comes out first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today is " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "These functions may be called:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no first user message to put the tools in!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

TEMPLATES["mistral"] = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the system message, roles must take turns: user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("A tool call's id has nine letters or digits!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Known roles are user and assistant, with a system message first!") }}
    {%- endif %}
{%- endfor %}
"""

TEMPLATES["qwen25"] = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a useful weaver.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nSignatures stand between <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nAnswer with {\\"name\\": <name>, \\"arguments\\": <object>}<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a useful weaver.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TEMPLATES["qwen3"] = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

TEMPLATES["deepseek_v2"] = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""

TEMPLATES["phi3"] = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""

TEMPLATES["gemma"] = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"""

TEMPLATES["gemma3"] = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""

TEMPLATES["macros"] = """{%- macro type_of(spec, level=0) -%}
    {%- if spec.type == 'object' -%}
{ {%- for name, property in spec.properties|dictsort %}
{{ '  ' * (level + 1) }}{{ name }}{{ '' if name in (spec.required or []) else '?' }}: {{ type_of(property, level=level + 1) }}{{ ',' if not loop.last }}
{%- endfor %}
{{ '  ' * level }}}
    {%- elif spec.type == 'array' -%}
{{ type_of(spec['items'], level) }}[]
    {%- elif spec.enum is defined -%}
{{ spec.enum | map('tojson') | join(' | ') }}
    {%- else -%}
{{ {'string': 'str', 'integer': 'int', 'number': 'float'}.get(spec.type, spec.type) }}
    {%- endif -%}
{%- endmacro -%}
{% macro turn(role) %}
<{{ role }}>{{ caller(role|upper) }}</{{ role }}>
{% endmacro %}
{%- for tool in tools or [] %}
// {{ tool.function.description | default('no description', true) }}
type {{ tool.function.name }} = {{ type_of(tool.function.parameters) }};
{%- else %}
// no tools
{%- endfor %}

{% for message in messages %}
{%- call(big) turn(message.role) %}{{ big[:1] }}|{{ message.content or '-' }}{% endcall -%}
{% endfor %}
{% generation %}{% set inner = 'x' %}{{ inner }}{% endgeneration %}{{ inner is defined }}
"""

TEMPLATES["loops"] = """{% for message in messages if message.role != 'system' %}
{{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }} {{ loop.cycle('a', 'b', 'c') }} {{ loop.changed(message.role) }} {{ loop.previtem.role if loop.previtem is defined else '^' }} {{ loop.nextitem.role or '$' if not loop.last else '$' }}
{%- if message.content is string and 'stop' in message.content %}{% break %}{% endif %}
{%- if not message.content %}{% continue %}{% endif %}
 {{ message.content | length }} {{ (message.content | string)[:8] | upper }}
{% else %}
nothing
{% endfor %}
{% set ns = namespace(total=0, seen=[]) %}
{% for message in messages %}
  {%- for key, value in message.items() %}
    {%- set ns.total = ns.total + (value | length if value is sequence else 0) %}
    {%- set ns.seen = ns.seen + [loop.index0 ~ key] %}
  {%- endfor %}
{% endfor %}
{{ ns.total }} {{ ns.seen }}
{%+ set long %}
  {{ messages | map(attribute='role') | unique | join('+') }}
{% endset %}
{{ long | trim | indent(2, first=true) }}
{% with a = 1, b = messages | length %}{{ a + b }}{% endwith %}
{% filter upper | replace('A', '4') %}made by {{ messages[-1].role }}{% endfilter %}

{% raw %}{{ not touched }} {% no %}{% endraw %}
{% for item in [[1, [2, [3]]], 4] recursive %}{{ loop.depth }}:{% if item is iterable %}({{ loop(item) }}){% else %}{{ item }}{% endif %}{{ ';' if not loop.last }}{% endfor %}
"""

TEMPLATES["documents"] = """{{ bos_token }}{% if documents %}
{%- for document in documents %}
[{{ loop.index0 }}] {{ document.title | default(document['id']) | title }}: {{ document.text | truncate(40) | tojson }}
{%- endfor %}
{%- endif %}
{{ messages | rejectattr('role', 'in', ['system', 'tool']) | map(attribute='content') | select('string') | join('\\n---\\n') }}
{{ messages | groupby('role') | map('first') | list }}
{{ {'b': 1, 'a': {'é': [1.0, true, none]}} | tojson(indent=2, sort_keys=true) }}
{{ tools | tojson(ensure_ascii=true, separators=(',', ':')) if tools is iterable and tools is not none }}
"""

FUNCTION = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather \"now\" at a place in <Grad> & Fahrenheit's",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Stadt, z. B. Köln"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "array", "items": {"type": "integer"}},
                "at": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]},
            },
            "required": ["place"],
        },
        "return": {"type": "string"},
    },
}
CALL = {"id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Köln", "days": [1, 2.5, None, True]}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


CONVERSATIONS = {
    "one": {"messages": [user("Hello, loom!")]},
    "system": {"messages": [system("You weave.\n"), user("  How many shafts?  ")]},
    "multi": {"messages": [system("Short answers."), user("Hi"), assistant("Hello. "), user("And\nnow?"), assistant(" Weave. "), user("stop?")]},
    "no_prompt": {"messages": [user("a"), assistant("b")], "add_generation_prompt": False},
    "unicode": {"messages": [system("日本語で。"), user("Größe 🧵🇩🇪 \u00a0\u3000 e\u0301"), assistant("ДА\u2028нет"), user("\t\u200bמה?\n")]},
    "empty": {"messages": [system(""), user(""), assistant(""), user("\n \n")]},
    "tools": {"messages": [system("Use tools."), user("Weather in Köln?")], "tools": [FUNCTION]},
    "tool_calls": {
        "messages": [
            user("Weather?"),
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "{\"t\": 21}", "tool_call_id": "abc123def", "name": "get_weather"},
            assistant("21 degrees."),
            user("Thanks <b>&\"'</b>"),
        ],
        "tools": [FUNCTION, {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}],
    },
    "think": {"messages": [user("2+2?"), assistant("<think>\nadd\n</think>\n\n4"), user("3+3?"), assistant("<think>\nagain</think>6")], "enable_thinking": False},
    "parts": {"messages": [system([{"type": "text", "text": "Look."}]), user([{"type": "image"}, {"type": "text", "text": " what? "}])]},
    "wrong_roles": {"messages": [user("a"), user("b")]},
    "documents": {"messages": [user("Sum up.")], "documents": [{"title": "on looms", "text": "A loom holds threads " * 4}, {"id": "d-2", "text": "kurz"}]},
    "none": {"messages": []},
}

# Each is rendered as {{ EXPRESSION }} with these variables.
VARIABLES = {
    "s": "Hello, World", "u": "äöü 🧵 日本", "empty": "", "blank": " \t\n x \n", "words": "the quick  brown\nfox", "n": 7, "z": 0, "neg": -7, "f": 2.5, "big": 1e16, "tiny": 1e-05,
    "t": True, "no": False, "nil": None, "l": [3, 1, 2], "mixed": [1, "1", 1.0, True, None, [1], {"a": 1}], "d": {"b": 2, "a": 1, "C": [1, 2], "items": "shadow"},
    "rows": [{"n": "x", "v": 3, "in": {"k": 1}}, {"n": "Y", "v": 1}, {"n": "x", "v": 2, "in": {"k": 0}}], "nested": [[1, 2], [3, [4, 5]]], "strs": ["b", "A", "c", "a", "B"],
    "html": "<a href=\"x\">&'</a>",
}

EXPRESSIONS = r"""
1 + 2 * 3 | 2 ** 3 ** 2 | -2 ** 2 | (1, 2) + (3,) | 7 // 2 | -7 // 2 | 7 // -2 | -7 % 3 | 7 % -3 | 7.5 // 2 | -7.5 % 2 | 1 / 2 | 4 / 2 | 2 ** -1 | 2 ** 0.5 | 1e3 | 1.5e-7 | 100000000000000000.0 | 0.1 + 0.2
1_000 | 0x1F + 0o17 + 0b101 | 1 / 0 | 1 // 0 | 1 % 0 | 1.0 / 0 | 0 ** -1 | 'a' * 3 | 3 * 'ab' | 'a' * -1 | [1] * 2 | 'a' + 1 | 1 + 'a' | 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] | nil ~ undefinedthing | true + true | -true | +5 | -'a'
1 < 2 < 3 | 1 < 3 < 2 | 1 == 1.0 | 1 == true | '1' == 1 | [1, 2] == [1, 2] | [1] == (1,) | (1, 2) < (1, 3) | 'a' < 'b' | 1 < 'a' | none < 1 | none == none | d == d | {'a': 1} == {'a': 1.0} | 3 in l | 'ell' in s | 'b' in d | 3 not in l | 1 in 'a' | 1 in 5 | none in l | '' in '' | not 1 in l
1 and 2 | 0 and 2 | 0 or 'x' | '' or none | not '' | not not 5 | 1 if t else 2 | 1 if no else 2 | 1 if no | (1 if no) is undefined | 1 if t if no else 3 | 'a' if 0 else 'b' if 1 else 'c'
undefinedthing | undefinedthing.x | undefinedthing['x'] | undefinedthing + 1 | undefinedthing == undefinedthing | undefinedthing is defined | undefinedthing | length | undefinedthing | default('x') | undefinedthing | list | undefinedthing | join(',') | undefinedthing | upper | undefinedthing | tojson | undefinedthing | int | undefinedthing() | undefinedthing in [1] | 1 in undefinedthing | undefinedthing | first | undefinedthing | last | not undefinedthing | undefinedthing < 1 | [undefinedthing] | d.x | d.x.y | d['x'] | l[10] | l['x'] | l.x | s.x | n.x | n[0] | nil.x | nil['x'] | rows[0]['in'].k | rows[1]['in'].k | d.x is defined | d.x | default('z') | d.x | default | nil | default('z') | nil | default('z', true) | '' | d('q', true) | 0 | default(5, boolean=true)
s[0] | s[-1] | s[99] | s[1:3] | s[::-1] | s[::2] | s[-3:] | s[:-3] | s[5:1] | s[5:1:-1] | s[::0] | u[0] | u[4] | u[::-1] | u[4:6] | u | length | l[1:] | l[::-1] | l[:1] | l[-2:] | l[-100:100] | l[100:] | (1, 2, 3)[1:] | l['a':] | d[1:2] | l[true] | l[1.0] | nested[1][1][0] | nested.1.0 | l.0 | range(10)[2:5] | range(10)[-1] | range(5) | list | range(2, 10, 3) | list | range(5, 0, -2) | list | range(0) | list | range(1, 2) | range(1, 9, 2) | range(1000000) | range(1.5) | range() | range(1, 2, 0)
s.upper() | s.lower() | s.title() | s.swapcase() | 'hello world'.capitalize() | u.upper() | 'straße'.upper() | 'ΑΣ'.lower() | 'ŉ'.upper() | 'dž'.title() | 'ﬁx'.capitalize() | "they're bill's".title() | s.strip() | blank.strip() | blank.lstrip() | blank.rstrip() | 'xxaxx'.strip('x') | 'xyaxy'.lstrip('yx') | 'abc'.rstrip('') | 'abc'.strip(none) | 'abc'.strip(1) | '\u3000a\u2003'.strip() | s.startswith('He') | s.startswith(('a', 'H')) | s.endswith('ld') | s.endswith('') | s.startswith('ello', 1) | s.startswith('e', 1, 3) | s.startswith(1) | s.find('o') | s.find('o', 5) | s.find('zz') | s.rfind('o') | s.index('zz') | s.index('W') | u.find('日') | s.find('') | s.find('', 99) | s.count('l') | s.count('') | s.count('l', 4) | s.replace('l', 'L') | s.replace('l', 'L', 1) | s.replace('', '-') | s.replace('', '-', 3) | s.replace('l') | s.split() | words.split() | words.split(' ') | words.split(none, 1) | words.split(' ', 1) | 'a,b,,c'.split(',') | 'a,b,c'.rsplit(',', 1) | words.rsplit(none, 1) | ''.split() | ''.split(',') | 'a'.split('') | 'a\nb\r\nc\n'.splitlines() | 'a\nb'.splitlines(true) | 'a-b-c'.partition('-') | 'a-b-c'.rpartition('-') | 'abc'.partition('x') | ','.join(strs) | ','.join(l) | ','.join('abc') | 'abc'.removeprefix('a') | 'abc'.removesuffix('bc') | 'a'.center(5) | 'ab'.center(5, '*') | 'a'.ljust(3) ~ '|' | 'a'.rjust(3, '0') | '7'.zfill(3) | '-7'.zfill(4) | 'a\tb'.expandtabs(4) | 'abc'.isalpha() | 'ab1'.isalnum() | '12'.isdigit() | '²'.isdigit() | '½'.isnumeric() | '１'.isdecimal() | 'aB'.islower() | 'AB'.isupper() | 'Ab Cd'.istitle() | ' \t'.isspace() | ''.isspace() | 'é'.isascii() | 'a b'.isidentifier() | 'a\n'.isprintable()
'{} {}'.format(1, 'a') | '{1} {0}'.format(1, 2) | '{a}'.format(a=3) | '{a.b}'.format(a={'b': 4}) | '{0[x]} {0[1]}'.format({'x': 1, 1: 2}) | '{:>5}|{:<5}|{:^5}'.format(1, 'a', 'b') | '{:05d} {:+d} {:,} {:x}'.format(42, 42, 1234567, 255) | '{:.2f} {:e} {:g} {:%}'.format(3.14159, 1234.5, 0.0001, 0.25) | '{!r}'.format('a') | '{{}}'.format() | '{}'.format() | '{' .format(1) | '{:d}'.format('a') | '{0.__class__}'.format(1) | '%s %d %r' % ('a', 3, 'b') | '%05.1f|%-5s|%+d|%x|%%' % (2.25, 'a', 3, 255) | '%s' % 5 | '%s %s' % 5 | '%d' % 'a' | '%(a)s' % {'a': 1} | '%s' % (l,) | '%5s|%.2s' % ('a', 'abc') | '%c%c' % (65, 'b') | '%s-%s'|format('a', 1) | '%(x)d'|format(x=3) | 'a' % 1 | '%e' % 12345.678 | '%g' % 1e-10 | '%i' % 3.9
d.items() | d.items() | list | d['items'] | d.keys() | list | d.values() | list | d.get('a') | d.get('zz') | d.get('zz', 5) | d.get() | d.update({'a': 2}) | d.update | d.pop('a') | d.clear() | l.append(1) | l.append | l.sort() | l.index(1) | l.index(9) | l.count(1) | d.keys() | d | d.copy() | l.__class__ | ''.__class__ | d.__init__ | s._x | d | length | 'a' in d.keys() | d.a | d['a'] | d | list | dict(a=1, b=2) | dict([('x', 1)]) | dict({'a': 1}, b=2) | {'a': 1, 'a': 2} | {1: 'a', 1.0: 'b', true: 'c'} | {(1, 2): 3} | {[1]: 2} | {none: 1}[none] | {'a': {'b': [1]}}.a.b[0] | {} | [] | () | (1,) | ((1)) | (1, 2,) | [1, 2,] | {'a': 1,}
'abc' | upper | 'ABC' | lower | 'hello wORLD-foo (bar' | title | 'hELLO' | capitalize | ' a ' | trim | 'xax' | trim('x') | 5 | trim | 'a-b' | replace('-', '+') | 'aaa' | replace('a', 'b', 2) | 5 | replace(5, 6) | [1, 2] | string | none | string | 1.0 | string | true | string | 'x' | string | '5' | int | '5.9' | int | 'x' | int | 'x' | int(7) | '0x1f' | int(0, 16) | '1f' | int(base=16) | ' 5 ' | int | '1_000' | int | none | int | 5.9 | int | -5.9 | int | true | int | [] | int | '3.5' | float | 'x' | float | 'x' | float(1.5) | '1e3' | float | 'inf' | float | 'nan' | float | none | float | 3 | float | -3 | abs | -2.5 | abs | 'a' | abs | 2.5 | round | 3.5 | round | 2.567 | round(2) | 2.567 | round(1, 'ceil') | 2.567 | round(1, 'floor') | 1234 | round(-2) | 1250 | round(-2) | 2.5 | round(0, 'x') | 5 | round | 2.675 | round(2) | -0.5 | round | 12.5 | round(-1) | 7 | round(0, 'ceil')
'abc' | length | l | count | 5 | length | none | length | l | first | l | last | '' | first | [] | last | 'abc' | last | 'abc' | first | d | first | d | last | l | join | l | join('-') | strs | join(', ') | rows | join(',', attribute='n') | nested | join('|') | 5 | join | l | sort | strs | sort | strs | sort(case_sensitive=true) | strs | sort(reverse=true) | rows | sort(attribute='v') | map(attribute='v') | list | rows | sort(attribute='n,v') | map(attribute='v') | list | mixed | sort | d | sort | 'bca' | sort | l | min | l | max | [] | min | strs | min | strs | max(case_sensitive=true) | rows | max(attribute='v') | l | sum | rows | sum('v') | rows | sum(attribute='v', start=10) | strs | sum | [] | sum | nested | sum(start=[]) | l | reverse | list | 'abc' | reverse | l | reverse | strs | unique | list | strs | unique(true) | list | rows | unique(attribute='n') | list | length | mixed | unique | list | range(7) | batch(3) | list | range(7) | batch(3, 'x') | list | range(7) | slice(3) | list | range(7) | slice(3, 'x') | list | 'abc' | list | d | list | 5 | list | none | list
l | map('string') | list | strs | map('upper') | join | rows | map(attribute='n') | list | rows | map(attribute='in.k') | list | rows | map(attribute='in.k', default=9) | list | rows | map(attribute='zz') | list | l | map('nofilter') | list | l | map() | list | nested | map('first') | list | nested | map(attribute=0) | list | nested | map(attribute='1') | list | l | map('round', 1) | list | l | select('odd') | list | l | reject('odd') | list | [0, 1, '', none, 'a'] | select | list | [0, 1, ''] | reject | list | l | select('gt', 1) | list | l | select('nope') | list | rows | selectattr('in') | map(attribute='v') | list | rows | selectattr('v', 'ge', 2) | map(attribute='v') | list | rows | selectattr('n', 'equalto', 'x') | list | length | rows | rejectattr('n', 'in', ['Y']) | list | length | rows | rejectattr('in', 'defined') | map(attribute='n') | list | rows | selectattr | list | rows | selectattr('in.k', 'eq', 0) | list | length | rows | selectattr('v') | first | rows | selectattr('v') | length | d | items | list | {'x': 1} | items | list | 5 | items | d | dictsort | {'b': 1, 'A': 2, 'c': 0} | dictsort | {'b': 1, 'A': 2, 'c': 0} | dictsort(true) | {'b': 1, 'A': 2, 'c': 0} | dictsort(by='value') | {'b': 1, 'A': 2} | dictsort(reverse=true) | l | dictsort | rows | groupby('n') | list | rows | groupby('n', case_sensitive=true) | map('first') | list | rows | groupby('in.k', default=5) | map('list') | list | rows | map('attr', 'n') | list | d | attr('a') | d | attr('items') | s | attr('upper')
d | tojson | mixed | tojson | s | tojson | u | tojson | u | tojson(ensure_ascii=true) | html | tojson | d | tojson(indent=2) | nested | tojson(indent=1) | d | tojson(sort_keys=true) | d | tojson(separators=(',', ':')) | {} | tojson(indent=2) | [] | tojson(indent=2) | big | tojson | tiny | tojson | {1: 2, none: 3, true: 4, 1.5: 5} | tojson | {(1, 2): 3} | tojson | '\x7f\x00\x1f\u2028' | tojson | '\x7f\u0080' | tojson(true) | range(3) | tojson | l | map('string') | tojson | (1, 2) | tojson | 'a' | tojson(indent='\t') | [1, [2]] | tojson(indent='--') | true | tojson | none | tojson | ('nan' | float) | tojson | {'b': 1, 'a': 2} | tojson(sort_keys=true, indent=0)
html | e | html | escape | html | e | e | html | safe | html | safe | e | (html | e) + '<' | '<' + (html | e) | (html | e) ~ '<' | 'a' | e is escaped | 'a' is escaped | [html | e] | 'a\nb' | indent | 'a\n\nb' | indent(2, true) | 'a\n\nb' | indent(2, blank=true) | 'a\nb\n' | indent('> ') | 5 | indent | 'foo bar baz qux' | truncate(9) | 'foo bar baz qux' | truncate(9, true) | 'foo bar baz qux' | truncate(11) | 'foo bar baz qux' | truncate(9, false, '', 0) | 'foo bar' | truncate(2) | 'a' | nosuchfilter | 'a' is nosuchtest
1 is odd | 2 is even | 9 is divisibleby 3 | 9 is divisibleby(4) | 'a' is string | 1 is string | 1 is number | true is number | 1.5 is float | 1 is float | 1 is integer | true is integer | true is boolean | 1 is boolean | none is none | d is mapping | l is mapping | l is iterable | 5 is iterable | 'a' is iterable | l is sequence | d is sequence | 'a' is sequence | 5 is sequence | (l | map('int')) is iterable | (l | map('int')) is sequence | true is true | 1 is true | false is false | 0 is false | 'ABC' is upper | 'abc' is lower | 'aBc' is lower | 1 is sameas 1 | l is sameas l | l is sameas [3, 1, 2] | 1 is in l | 9 is not in l | 1 is eq 1 | 1 is ne 2 | 1 is lt 2 | 2 is gt 1 | 1 is le 1 | 1 is ge 2 | 1 is equalto 1 | 2 is greaterthan 1 | 1 is lessthan 2 | 'upper' is filter | 'zz' is filter | 'odd' is test | range is callable | s is callable | s.upper is callable | 'a' is odd | 1 is not odd | not 1 is odd | 1 is defined and 2 is defined | x is defined is defined | 1 is odd or 0 | d.x is undefined | none is defined | 1 is number is true
s | upper | lower | s | replace('o', '0') | upper ~ '!' | -1 | abs | -(1 | abs) | 1 + 2 | string | (1 + 2) | string | not 0 | string | 'a' 'b' "c" | 'it''s' | "a\"b" | 'a\'b' | '\n\t\\' | '\x41\u00e9\U0001F600\101' | '\q' | ['a', "it's", 'q"', 'b\'"', '\n', 'é', '\x00', '\u200b', '\ud7ff'] | [1.0, 1e100, 1e-7, 123456789.123, true, none, (1,), {'a': 'b'}] | [big, tiny, 1e15, 123456789012345680.0] | {'a': [1, {'b': ('c',)}]} | 9223372036854775807 | 0.1 | 1e22 | 1.0 | -0.0 | 3.0 | string
namespace(a=1).a | namespace(a=1) | namespace({'a': 1}, b=2) | namespace(a=1).zz | namespace() is mapping | cycler('a', 'b').next() | joiner() is callable | raise_exception('own message') | raise_exception(5) | raise_exception() | strftime_now('%Y-%m-%d %H:%M:%S') | strftime_now('%d %B %Y, %A %j') | strftime_now('') | strftime_now(5) | messages | s.upper | s.nosuch() | 5() | none() | (1)(2) | s() | l() | d() | range | dict | loop | caller | varargs is defined
{'a': 1}['a'] | [1, 2, 3][1] | 'abc'[1] | (1, 2)[0] | {'a': 1}.a | {'a': [1, 2]}.a[1:] | [[1, 2], [3]] | [x for x in l] | l[] | 1 + | (1 | 1) | [1 | {1 | {'a' 1} | a b | 1 2 | 'a | "a | a..b | a. | .a | 1.a | | upper | 5 | 5 | x is | x is not | *l | f(*l, **d) | range(*[1, 3]) | list | dict(**{'a': 1}) | dict(a=1, a=2) | range(*5) | '{}{}'.format(*l) | '{a}'.format(**{'a': 1}) | dict(**5) | not | and | 1 if | $ | a ? b | a & b | a ! b | a = b | 1 <> 2 | 1 === 1 | `a` | λ | é.x | 1__0 | 01 | 1.e5 | 1.5.upper() | 1 .upper() | 5.real | n.real
"""

# Templates whose white space, tags or errors are the point.
SNIPPETS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "  {% if true %}  \n  b\n  {% endif %}  \n", "x {%- if true -%} \n y \n {%- endif -%} z", "  {%+ if true %} b {% endif +%}\nc", "{{ 1 }}\n{{ 2 }}\n", " {{- 1 -}} x {{- 2 }} \n",
    "a {# comment #}\nb", "a\n  {# c #}\nb", "a {#- c -#} b", "{# {{ x }} {% if %} #}z", "{# multi\nline #}\n\nz", "{% raw %} {{ a }} {% endraw %}", "{%- raw -%} \n {{ a }} \n {%- endraw -%} b", "  {% raw %}\n x\n  {% endraw %}\ny", "a\r\nb\rc\r\n", "\n", "", "\n\n", "{{ '\r\n' | length }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% for i in [1,2] %}{{ x is defined }}{% set x = i %}{{ x }}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [3, 4] %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a, b = [1, 2, 3] %}", "{% set a = 1, 2 %}{{ a }}",
    "{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set d = {} %}{% set d.x = 1 %}", "{% set x.y = 1 %}", "{% set x %}a {{ 1 + 1 }} b{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'b') %}aa{% endset %}{{ x }}", "{% set loop = 1 %}{{ loop }}", "{% for loop in [1] %}{% endfor %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set x = %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }};{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}", "{% for c in 'aé🧵' %}{{ c }},{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in undefinedthing %}a{% else %}b{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for x in [1, 2, 3] if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{% else %}e{% endfor %}", "{% for x in [1, 2] if x > 5 %}{% else %}e{% endfor %}",
    "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% else %}e{% endfor %}", "{% for x in [1] %}{% continue %}{% else %}e{% endfor %}", "{% for x in [1] %}{% break %}{% else %}e{% endfor %}", "{% break %}", "{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in [1, 2] %}{{ loop }}{% endfor %}", "{% for x in [1, 2] %}{{ loop.nosuch }}{{ loop.previtem }}|{{ loop.nextitem }}{% endfor %}", "{% for x in [1, 2, 3] %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.changed(x, 1) }}{% endfor %}", "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "{{ loop.index }}",
    "{% set ns = namespace(ok=true) %}{% for x in [1, 2, 3] if ns.ok %}{{ x }}{% set ns.ok = x < 2 %}{% endfor %}", "{% for x in [1, 2, 3] if x != 2 %}{{ loop.length }}{{ loop.nextitem }} {% endfor %}", "{% for x in [[1], [2]] recursive %}{{ loop.depth0 }}{{ x }}{% if x is iterable %}{{ loop(x) }}{% endif %}{% endfor %}", "{% for x in [1, 2] %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% set it = l | map('string') %}{{ it | join }}{{ it | join }}", "{% for x in l | select('odd') %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m() }}|{{ m(1, 2, 3) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}{{ m() }}", "{% macro m(l) %}{% for x in l %}{{ caller(x, y=1) }}{% endfor %}{% endmacro %}{% call(a, y) m([1, 2]) %}{{ a }}{{ y }};{% endcall %}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro m() %} a {% endmacro %}{{ m() | trim }}{{ m }}{{ m.name }}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{% break %}{% endmacro %}", "{% call m() %}{% endcall %}", "{% for i in [1] %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% filter upper %}a{% if true %}b{% endif %}{% endfilter %}", "{% generation %}a{% set b = 1 %}{% endgeneration %}{{ b is defined }}", "{% block a %}x{{ s }}{% endblock %}", "{% block a %}x{% endblock a %}y", "{% print 1, 2 %}", "{% autoescape false %}<{% endautoescape %}", "{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif 2 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif '' %}b{% else %}c{% endif %}", "{% if l, %}a{% endif %}",
    "{% if %}{% endif %}", "{% if 1 %}", "{% endif %}", "{% for x in [1] %}{% endif %}", "{% nosuchtag %}", "{% %}", "{{ }}", "{{", "{{ 1", "{%", "{% if 1", "{#", "{{ 1 }", "{{ 1 }}}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}", "{% raw %}", "{% endraw %}", "{{ 'a }}", "{{ ')' }}", "{{ (1 }}", "{{ 1) }}", "{{ [1) }}", "{% if 'a' | nosuchfilter %}{% endif %}", "{% if false %}{{ 1 | nosuchfilter }}{% endif %}x", "{{ 1 | nosuchfilter if false else 2 }}", "{% if true %}{% for x in [1] %}{{ x | nosuchfilter }}{% endfor %}{% endif %}", "{% if false %}{{ 1 is nosuchtest }}{% endif %}x", "{% for x in [] %}{{ x | nosuchfilter }}{% endfor %}",
    "{{ x\n+\n1 }}\n{{ undefinedthing.y }}", "a{{ 1 }}{% if true %}\n{% endif %}b", "{%- for m in l -%}\n  {{ m }}\n{%- endfor -%}", "{% for m in l %}\n  {{ m }}\n{% endfor %}\n", "{% for m in l -%}\n  {{ m }},\n{%- endfor %}\n.", "  {{ 1 }}  {% if true %}  x  {% endif %}  ", "\t{% if true %}\n\t\tx\n\t{% endif %}\n", "x\u00a0{%- if true %}y{% endif %}", "{%if true%}a{%endif%}", "{{1}}{{'a'}}", "{{-1}}{{+1}}{{ -1 }}", "{{ 1 }}{{- 2 }} {{ 3 -}} 4", "{%- if true %} a {%- endif %} b", "{{ 'a' -}}\n\n {# c #} {{- 'b' }}",
]


def split_expressions():
    """Splits the table at " | ". A filter's own bar is not distinguished: a case that ends in a filter is written with it, and every
    prefix of a chain of filters is a case, too."""
    cases = []
    for line in EXPRESSIONS.strip().splitlines():
        parts = line.split(" | ")
        for i, part in enumerate(parts):
            cases.append(part)
            for length in (2, 3, 4):
                if i + length <= len(parts):
                    cases.append(" | ".join(parts[i:i + length]))
    filters = set(jinja2.Environment().filters)
    kept = []
    for case in cases:
        pieces = case.split(" | ")
        # A chain is kept when everything behind the first bar begins like a filter.
        if all(any(piece == f or piece.startswith((f + "(", f + " ")) for f in filters | {"nosuchfilter", "nofilter"}) for piece in pieces[1:]):
            kept.append(case)
    return list(dict.fromkeys(kept))


def render(template, variables):
    try:
        return {"text": chat_template_utils._cached_compile_jinja_template(template).render(**variables)}
    except jinja2.exceptions.TemplateSyntaxError as error:
        return {"error": "syntax", "line": error.lineno}
    except jinja2.exceptions.TemplateError as error:  # the template's own messages, and uses of what is undefined
        return {"error": "template", "message": str(error)}
    except Exception as error:
        return {"error": type(error).__name__}


def address_like(result):
    """Texts with an address of this run, or with something that only Python has."""
    return " at 0x" in result.get("text", "") or "<class" in result.get("text", "") or "<built-in" in result.get("text", "") or "<function" in result.get("text", "")


def conversation_cases():
    cases = []
    for name, template in TEMPLATES.items():
        for conversation_name, conversation in CONVERSATIONS.items():
            variables = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None, "add_generation_prompt": True, **conversation}
            cases.append({"name": f"{name}/{conversation_name}", "template": name, "variables": variables, "expected": render(template, variables)})
    return cases


def snippet_cases():
    cases = []
    for template in SNIPPETS + ["{{ " + expression + " }}" for expression in split_expressions()]:
        expected = render(template, VARIABLES)
        if not address_like(expected):
            cases.append({"template": template, "expected": expected})
    return cases


def write():
    DATA.mkdir(parents=True, exist_ok=True)

    def dump(name, value):
        lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in value.pop("cases"))
        head = json.dumps(value, ensure_ascii=True)[1:-1]
        (DATA / name).write_text("{" + head + (", " if head else "") + '"cases": [\n' + lines + "\n]}\n")

    conversations = conversation_cases()
    snippets = snippet_cases()
    dump("conversations.json", {"templates": TEMPLATES, "cases": conversations})
    dump("snippets.json", {"variables": VARIABLES, "cases": snippets})
    print(len(conversations), "conversations,", len(snippets), "snippets,", sum("error" in c["expected"] for c in snippets), "of them errors")


class Generator:
    """Random expressions that are often sensible."""

    NAMES = list(VARIABLES) + ["undefinedthing"]
    CONSTANTS = ["0", "1", "2", "-1", "3", "10", "1.5", "0.0", "-2.5", "true", "false", "none", "''", "'a'", "'Hello'", "'äß'", "'a b'", "','", "'o'", "[]", "{}", "()", "[1, 2]", "'%s'", "'{}'", "'x' 'y'", "1e20"]
    FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "sort", "unique|list", "join", "string", "int", "float", "abs", "round", "min", "max", "sum", "reverse|list", "tojson",
               "items|list", "dictsort", "map('string')|list", "map('upper')|list", "select|list", "reject|list", "default", "e", "batch(2)|list", "slice(2)|list", "reverse", "map('length')|list", "map('first')|list"]
    TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "odd", "even", "lower", "upper", "callable"]
    METHODS = ["upper", "lower", "title", "strip", "lstrip", "split", "splitlines", "capitalize", "swapcase", "isalpha", "isdigit", "islower", "isupper", "istitle", "isspace", "items", "keys", "values", "copy"]
    METHODS1 = ["split", "strip", "lstrip", "rstrip", "startswith", "endswith", "find", "rfind", "index", "count", "join", "get", "partition", "rpartition", "center", "zfill", "format", "rsplit", "removeprefix", "ljust"]
    FILTERS1 = ["join", "default", "round", "int", "batch", "slice", "map", "select", "reject", "selectattr", "indent", "trim", "truncate", "sum", "sort", "groupby", "attr", "unique", "tojson"]
    BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def expression(self, depth):
        r = self.random
        kind = r.randrange(14) if depth > 0 else r.randrange(2)
        sub = lambda: self.expression(depth - 1)
        if kind == 0:
            return r.choice(self.NAMES)
        if kind == 1:
            return r.choice(self.CONSTANTS)
        if kind in (2, 3):
            return f"({sub()} {r.choice(self.BINARY)} {sub()})"
        if kind == 4:
            return f"({sub()})|{r.choice(self.FILTERS)}"
        if kind == 5:
            return f"(({sub()})|{r.choice(self.FILTERS1)}({sub()}))"
        if kind == 6:
            return f"({sub()} is {r.choice(['', 'not '])}{r.choice(self.TESTS)})"
        if kind == 7:
            return f"({sub()}).{r.choice(self.METHODS)}()"
        if kind == 8:
            return f"({sub()}).{r.choice(self.METHODS1)}({sub()})"
        if kind == 9:
            return f"({sub()})[{sub()}]"
        if kind == 10:
            part = lambda: r.choice(["", "1", "-1", "2", "-2", "0", sub()])
            return f"({sub()})[{part()}:{part()}{r.choice(['', ':-1', ':2', ':-2'])}]"
        if kind == 11:
            return f"({sub()} if {sub()} else {sub()})"
        if kind == 12:
            return "[" + ", ".join(sub() for _ in range(r.randrange(4))) + "]"
        return r.choice([f"(not {sub()})", f"(-{sub()})", f"{{{sub()}: {sub()}}}", f"({sub()}, {sub()})", f"({sub()} ** {r.choice(['2', '0', '-1', '0.5'])})", f"range({r.randrange(-3, 9)})"])


def compare(program, count, seed):
    generator = Generator(seed)
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    different = 0
    for i in range(count):
        template = "{{ " + generator.expression(generator.random.randrange(1, 5)) + " }}"
        expected = render(template, VARIABLES)
        process.stdin.write(json.dumps({"template": template, "variables": VARIABLES}) + "\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
        if address_like(expected) or "beyond 64 bits" in found.get("error", "") or "complex" in found.get("error", ""):
            continue
        if " object at" in str(expected):
            continue
        same = found.get("text") == expected.get("text") and ("error" in found) == ("error" in expected)
        if same and expected.get("error") == "template" and "filter" not in expected["message"]:
            same = expected["message"] in found["error"]
        if not same:
            different += 1
            if different <= 40:
                print(template, "\n  jinja2:", expected, "\n  heddle:", found)
    print(count, "expressions,", different, "differ")
    return different


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.compare:
        raise SystemExit(1 if compare(arguments.compare, arguments.count, arguments.seed) else 0)
    write()
