"""A call as each of vLLM's tool parsers has it in the text that a model generates: look up an order by its number."""

# ruff: noqa: RUF001

import re

NAME, ORDER, PLACE = "look_up", 4417, "Porto Santo"
ARGUMENTS = {"order": ORDER, "place": PLACE}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": NAME,
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "integer"}, "place": {"type": "string"}},
                "required": ["order", "place"],
            },
        },
    }
]
_INPUT = '{"order": 4417, "place": "Porto Santo"}'
_ARGUMENTS = f'{{"name": "look_up", "arguments": {_INPUT}}}'
_PARAMETERS = f'{{"name": "look_up", "parameters": {_INPUT}}}'
_PYTHON = 'look_up(order=4417, place="Porto Santo")'
_GLM = (
    "<tool_call>look_up\n<arg_key>order</arg_key>\n<arg_value>4417</arg_value>\n"
    "<arg_key>place</arg_key>\n<arg_value>Porto Santo</arg_value>\n</tool_call>"
)
_QWEN = (
    "<tool_call>\n<function=look_up>\n<parameter=order>\n4417\n</parameter>\n"
    "<parameter=place>\nPorto Santo\n</parameter>\n</function>\n</tool_call>"
)
_INVOKE = (
    '<invoke name="look_up">\n<parameter name="order">4417</parameter>\n'
    '<parameter name="place">Porto Santo</parameter>\n</invoke>'
)
_DSML = (
    '<｜DSML｜{0}>\n<｜DSML｜invoke name="look_up">\n'
    '<｜DSML｜parameter name="order" string="false">4417</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="place" string="true">Porto Santo</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜{0}>"
)
_HUNYUAN = (
    "<tool_calls><tool_call>look_up{0}<arg_key>order</arg_key><arg_value>4417</arg_value>"
    "<arg_key>place</arg_key><arg_value>Porto Santo</arg_value></tool_call></tool_calls>"
)
_HERMES = f"<tool_call>\n{_ARGUMENTS}\n</tool_call>"
# Parsers that need what the pinned vLLM comes without: `cohere_melody`, an extension in Rust, a vocabulary to download.
UNBUILT = {"cohere_command3", "cohere_command4", "minimax_m3", "openai"}
MARKUP = {
    "apertus": f'<|tools_prefix|>[{{"look_up": {_INPUT}}}]<|tools_suffix|>',
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n"
    f"{_INPUT}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>"
    f"{_INPUT}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": _DSML.format("function_calls"),
    "deepseek_v4": _DSML.format("tool_calls"),
    "dots": f"<dots_function_call>\n{_INVOKE}\n</dots_function_call>",
    "ernie45": f"{_HERMES}\n",
    "functiongemma": "<start_function_call>call:look_up{order:<escape>4417<escape>,"
    "place:<escape>Porto Santo<escape>}<end_function_call>",
    "gemma4": '<|tool_call>call:look_up{order:4417,place:<|"|>Porto Santo<|"|>}<tool_call|>',
    "gigachat3": f"<|function_call|>{_ARGUMENTS}",
    "glm45": _GLM,
    "glm47": _GLM,
    "granite": f"<|tool_call|>[{_ARGUMENTS}]",
    "granite-20b-fc": f"<function_call> {_ARGUMENTS}",
    "granite4": _HERMES,
    "hermes": _HERMES,
    "hunyuan_a13b": f"<tool_calls>[{_ARGUMENTS}]</tool_calls>",
    "hy_v3": _HUNYUAN.format("<tool_sep>"),
    "hy_v4": _HUNYUAN.format(""),
    "inkling": '<|content_invoke_tool_json|>{"name": "look_up", "args": ' + _INPUT + "}<|end_message|>",
    "internlm": f"<|action_start|><|plugin|>{_PARAMETERS}<|action_end|>",
    "jamba": f"<tool_calls>[{_ARGUMENTS}]</tool_calls>",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>"
    f"{_INPUT}<|tool_call_end|><|tool_calls_section_end|>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="look_up" index="1"<|sep|>'
    '<|open|>argument key="order" type="number"<|sep|>4417<|close|>argument<|sep|>'
    '<|open|>argument key="place" type="string"<|sep|>Porto Santo<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "lfm2": f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>",
    "ling3": _GLM,
    "llama3_json": _PARAMETERS,
    "llama4_json": _PARAMETERS,
    "llama4_pythonic": f"[{_PYTHON}]",
    "longcat": f"<longcat_tool_call>{_ARGUMENTS}</longcat_tool_call>",
    "mimo": _QWEN,
    "minicpm5": '<function name="look_up"><param name="order">4417</param>'
    '<param name="place">Porto Santo</param></function>',
    "minimax_m2": f"<minimax:tool_call>\n{_INVOKE}\n</minimax:tool_call>",
    "mistral": f"[TOOL_CALLS] [{_ARGUMENTS}]",
    "muse_glimmer": " to=look_up<|message|><atem:function_calls>\n"
    '<atem:invoke name="look_up">\n<atem:parameter name="order">4417</atem:parameter>\n'
    '<atem:parameter name="place">Porto Santo</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>',
    "olmo3": f"<function_calls>{_PYTHON}</function_calls>",
    "phi4_mini_json": f"functools[{_ARGUMENTS}]",
    "poolside_v1": _GLM,
    "pythonic": f"[{_PYTHON}]",
    "qwen3_coder": _QWEN,
    "qwen3_xml": _QWEN,
    "seed_oss": "<seed:tool_call>\n<function=look_up>\n<parameter=order>4417</parameter>\n"
    "<parameter=place>Porto Santo</parameter>\n</function>\n</seed:tool_call>",
    "step3": '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="look_up">'
    '<steptml:parameter name="order">4417</steptml:parameter>'
    '<steptml:parameter name="place">Porto Santo</steptml:parameter></steptml:invoke>'
    "<｜tool_call_end｜><｜tool_calls_end｜>",
    "step3p5": _QWEN,
    "xlam": f"[{_ARGUMENTS}]",
}
# A demanded call where a parser leaves that to a JSON schema: of any function, and of this one.
DEMANDED, NAMED = f"[{_PARAMETERS}]", _INPUT
# What is a token of its own in the vocabulary of the models that say it.
_TAGS = re.compile(r"</?\|?[a-zA-Z_:▁｜]+\|?>|\[TOOL_CALLS\]|<\|\"\|>")
_ALSO = (
    "<|python_tag|>",
    "<think>",
    "</think>",
    "<|message_model|>",
    "<|content_text|>",
    "<|content_thinking|>",
    "<|start|>",
    "<|eot|>",
)
SPECIAL = sorted({tag for text in MARKUP.values() for tag in _TAGS.findall(text)} | set(_ALSO))
