"""Lint of what a definition does to the model that reads it: instructions, hidden text, ways out for data, secrets.

Patterns find what is written plainly, in English and in Chinese. They are a first look, not a defence: what a tool may
do is decided where it runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ctx_pipeline.tools.findings import LintTool, ToolFinding

_I = re.IGNORECASE | re.DOTALL
_INJECTION = tuple(
    re.compile(pattern, _I)
    for pattern in (
        r"\b(?:ignore|disregard|forget|override|bypass|discard|neglect|set aside)\b.{0,30}?\b(?:previous|prior"
        r"|above|earlier"
        r"|preceding|existing|former|system|safety|all|any|other|your|the user'?s?)\b.{0,30}?\b(?:instructions?"
        r"|prompts?|rules?"
        r"|messages?|guidelines?|guidance|directions|training|polic(?:y|ies)|directives?|restrictions?|guardrails?"
        r"|context|request)\b"
        r"|\b(?:ignore|disregard|forget)\b.{0,15}\b(?:everything|anything|all|what)\b.{0,25}\b(?:above|before"
        r"|previously|earlier|said|told|else)\b",
        r"\b(?:do not|don'?t|never|must not|avoid|without)\b.{0,20}\b(?:tell|telling|inform|informing|mention"
        r"|mentioning|notify"
        r"|notifying|reveal|revealing|alert|alerting|disclose|disclosing|ask|asking|show|showing"
        r"|let)\b.{0,25}\b(?:the )?"
        r"(?:user|human|operator|person|anyone)\b",
        r"\b(?:hide|conceal|keep)\b.{0,30}\bfrom (?:the )?(?:user|human|operator)\b|\bignore the (?:user|human"
        r"|operator)\b",
        r"\b(?:skip|bypass|disable|without)\b.{0,20}\b(?:safety|security|asking|confirmations?"
        r"|approvals?)\b.{0,20}\b(?:checks?"
        r"|user|prompts?|rules?|filters?)\b|\b(?:do not|don'?t|never) (?:reveal|disclose|show|repeat) (?:these|this"
        r"|the|your)"
        r"\s+(?:instructions?|prompt|text|note)\b",
        r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|assistant|admin|override|sys|inst)\b[^>]{0,40}>"
        r"|\[\s*/?(?:system|inst|important)\s*\]|<\|[a-z_]+\|>|^\s*(?:system|assistant)\s*:",
        r"\b(?:system prompt|developer (?:mode|message|prompt)|jailbreak|do anything now|new instructions?\s*:"
        r"|hidden instructions?"
        r"|secret instructions?)\b",
        r"\byou (?:are now|must now|will now)\b|\bfrom now on,? you\b|\bact as (?:an?|the) (?:admin|root|system"
        r"|unrestricted)"
        r"|\bpretend (?:to be|that you)\b|\byour (?:new|real|true) (?:role|task|goal|instructions?)\b",
        r"(?:忽略|无视|忘记|忘掉|绕过|覆盖|不要理会|不用管|抛开).{0,15}(?:之前|以上|先前|前面|上述|所有|系统|原有|其他|用户).{0,10}"
        r"(?:指令|指示|提示|规则|要求|消息|限制|说明|约束|内容)",
        r"(?:不要|不得|切勿|请勿|别|无需|避免).{0,8}(?:告诉|告知|通知|提及|透露|提醒|询问|让).{0,8}(?:用户|使用者|任何人|人类)",
        r"系统提示词|越狱|你现在是|从现在(?:起|开始)，?你|新的?指令[:：]|隐藏指令",
    )
)
_ORDERS = tuple(
    re.compile(pattern, _I)
    for pattern in (
        r"\b(?:before|prior to|after|whenever|every time|each time)\b.{0,30}\b(?:us(?:e|ing)|call(?:ing)?|invok(?:e"
        r"|ing)|any|every"
        r"|all|each|other|answer(?:ing)?|respond(?:ing)?|reply(?:ing)?)\b.{0,50}\b(?:must|always|first|need to"
        r"|have to|required to)\b.{0,30}"
        r"\b(?:call|use|invoke|run|execute|read|send|fetch)\b",
        r"\b(?:must|always|you need to|be sure to|make sure to|required to)\b.{0,20}\b(?:call|use|invoke|run"
        r"|execute|prefer)\b.{0,25}"
        r"\b(?:this|the \w+)\b.{0,20}\b(?:instead|before|first|prior|over|rather)\b",
        r"\b(?:this tool )?(?:replaces|supersedes|overrides|takes precedence over"
        r"|takes priority over)\b.{0,30}\b(?:tools?|functions?)\b",
        r"\b(?:must|should|always|has to|needs to|required to)\b.{0,20}\bbe (?:called|used|invoked|run|executed"
        r"|preferred)\b.{0,25}"
        r"\b(?:before|first|prior|after|instead|over|whenever|every|all|any|each)\b",
        r"\bprefer this (?:tool|function) over (?:all|any|every|other)\b|\bonly (?:tool"
        r"|function) (?:that )?you (?:should|may|need)",
        r"\buse this (?:tool|function)\b.{0,15}\b(?:every|all|any|each|whatever|regardless|always|no matter)\b",
        r"(?:(?:^|[.!?;]\s*|\n\s*)(?:call|invoke|run|execute|trigger)|(?-i:\b(?:Call|Invoke|Run"
        r"|Execute)))\s+(?:the\s+)?[`'\"]?[a-z]+_\w+",
        r"\b(?:never|do not|don'?t|stop) (?:use|call|using|calling)\b.{0,20}\b(?:any )?other\b",
        r"\b(?:then|also|afterwards?|additionally|next|finally|first|must|always|please|and)[, ]+(?:you (?:must"
        r"|should) )?"
        r"(?:always )?(?:call|invoke|run|execute|trigger)\b(?: the)? [`'\"]?[a-z]\w*_\w+[`'\"]?",
        r"(?:调用|使用|执行|回答).{0,12}(?:之前|前|之后|后).{0,10}(?:必须|务必|一定要|应当|先).{0,6}(?:调用|使用|执行|读取|发送)",
        r"(?:必须|务必|一定要|始终|总是|优先).{0,6}(?:调用|使用|执行).{0,10}(?:本|此|该|这个)(?:工具|函数)"
        r"|(?:不要|禁止|切勿).{0,4}(?:使用|调用).{0,4}(?:其他|别的|任何其他)",
        r"(?:然后|接着|随后|同时|并且?|还要|必须|务必|再).{0,4}(?:调用|执行|触发)\s*[`'\"“]?[A-Za-z]\w*_\w+",
    )
)
_SENSITIVE = (
    r"(?:conversation|chat (?:history|log)|message history|api[ _-]?keys?|passwords?|credentials?|access tokens?"
    r"|auth(?:entication)? tokens?"
    r"|secrets?|private keys?|ssh keys?|~/\.\w+|\.env\b|id_rsa|mcp\.json|environment variables?|system prompt"
    r"|cookies?|session tokens?"
    r"|credit card|user'?s (?:data|files?|emails?|messages?)|all (?:data|files?|emails?|messages?|context)|/etc/\w+)"
)
_SENDING = r"(?:send|post|upload|forward|transmit|exfiltrate|leak|submit|report|deliver|copy|e?mail|bcc|cc|share)"
_DATA_OUT = tuple(
    re.compile(pattern, _I)
    for pattern in (
        rf"\b{_SENDING}\b.{{0,100}}?(?:https?://|www\.|\bftp://|[\w.+-]+@[\w-]+\.\w+|\bwebhook\b|\b(?:external"
        rf"|remote|third[- ]party|our|attacker)"
        r"\b.{0,15}\b(?:server|endpoint|url|site|service|address)\b)",
        rf"\b(?:{_SENDING}|pass|include|put|provide|add|append|attach|insert|embed|encode|paste|dump|read|fetch"
        rf"|collect|extract)\b"
        rf".{{0,60}}\b{_SENSITIVE}.{{0,60}}\b(?:param(?:eter)?s?|argument|field|as|in|into|to|with|along|here"
        rf"|sidenote|note|body)\b",
        r"\bexfiltrat\w*",
        r"!\[[^\]]*\]\(\s*https?://",
        r"(?:发送|上传|提交|转发|传送|上报|泄露|抄送|邮件).{0,40}(?:https?://|[\w.+-]+@[\w-]+\.\w+|外部|第三方|远程|服务器)",
        r"(?:把|将|附上|附加|包含|填入|读取).{0,20}(?:对话|聊天记录|密码|密钥|凭证|凭据|令牌|系统提示|环境变量|私钥|Cookie|\.env|\.ssh)"
        r".{0,20}(?:发送|传|参数|字段|填|附|上报|一并|到|至)",
        r"(?:~/\.ssh|~/\.aws|id_rsa|/etc/passwd|/etc/shadow|~/\.cursor|\.env\b file)",
    )
)
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\U000e0000-\U000e01ef\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
_JOINER = re.compile("(?<=[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\x00-\x7f])")
_UNSEEN_MARKUP = re.compile(
    r"<!--.*?(?:-->|$)|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|color\s*:\s*(?:white|transparent)",
    _I,
)
_PADDING = re.compile(r"\S[^\S\n]{40,}\S|\S(?:[^\S\n]*\n){12,}[^\S\n]*\S")
_ENCODED = re.compile(
    r"(?<![\w/+])[A-Za-z0-9+/]{80,}={0,2}(?![\w/+])|(?:\\x[0-9a-f]{2}){10,}|(?:%[0-9a-f]{2}){12,}",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"[^\W\d_]+")
_SECRETS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{16,}\b|\bgithub_pat_\w{20,}",
        r"\bsk-(?:[a-z]+-)*[A-Za-z0-9_-]{12,}\b|\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\bAIza[0-9A-Za-z_-]{20,}",
        r"\bglpat-[\w-]{16,}|\bnpm_[A-Za-z0-9]{20,}|\bhf_[A-Za-z0-9]{20,}|\bdop_v1_[a-f0-9]{20,}"
        r"|\bSG\.[\w-]{16,}\.[\w-]{16,}",
        r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY",
        r"\b[a-z][a-z0-9+.-]*://[^\s/:@<>{}$]+:[^\s/@<>{}$]{3,}@",
        r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}",
        r"(?i)\b(?:api[_ -]?key|secret(?:[_ -]?key)?|access[_ -]?token|auth[_ -]?token|password|passwd"
        r"|pwd)\b\s*(?:is|=|:|：)\s*"
        r"['\"]?(?=[^\s'\"]*[0-9])(?=[^\s'\"]*[A-Za-z])[^\s'\"<>{}]{8,}",
    )
)
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_-])(?:pass(?:word|wd|phrase)?|pwd|secret|api_?key|apikey|private_?key|credentials?|authorization"
    r"|bearer|access_?token|auth_?token)"
    r"(?:$|[_-])|(?:apiKey|accessToken|authToken|clientSecret|privateKey|secretKey)|密码|密钥|令牌"
)
_NO_SECRET = re.compile(
    r"(?i)^$|^[x*.•-]+$|your|example|placeholder|changeme|<.*>|\{.*\}|\$|^(?:none|null|test|string|secret|token"
    r"|password)$|xxx"
)


def safety_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Look at every text of a definition, wherever it stands; each code is given once, with its first place."""
    seen: set[str] = set()
    for place, text in _texts(tool.raw, ""):
        for code, message in _of_text(text):
            if code not in seen:
                seen.add(code)
                yield tool.finding(code, message, at=place)
    if "secret_value" not in seen:
        yield from _secret_parameters(tool)


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text of a definition with its place; names of keys count, icons do not."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            if place == "" and key == "icons":
                continue
            inner = f"{place}/{key}" if place else str(key)
            yield inner, str(key)
            yield from _texts(part, inner)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(cast("list[Any]", value)):
            yield from _texts(part, f"{place}/{number}")


def _of_text(text: str) -> Iterator[tuple[str, str]]:
    if len(text) < 4:
        return
    if not text.isascii() or not text.isprintable():
        if _HIDDEN.search(text) or _JOINER.search(text):
            yield "hidden_text", "a text has characters that are not seen"
        if any(_is_mixed(word) for word in _LETTERS.findall(text)):
            yield "mixed_scripts", "a word has letters of two scripts that look alike"
    if _UNSEEN_MARKUP.search(text) or _PADDING.search(text) or _ENCODED.search(text):
        yield "hidden_text", "a text has a part that a reader does not see or cannot read"
    plain = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    if any(pattern.search(plain) for pattern in _INJECTION):
        yield "prompt_injection", "a text gives orders to the model that reads it"
    if any(pattern.search(plain) for pattern in _DATA_OUT):
        yield "data_out", "a text tells the model to hand data to somebody else"
    if any(pattern.search(plain) for pattern in _ORDERS):
        yield "steers_other_tools", "a text tells the model which other tools to call or to leave"
    if any(pattern.search(plain) for pattern in _SECRETS):
        yield "secret_value", "a text looks like a secret"


def _is_mixed(word: str) -> bool:
    """Whether a word has Latin letters and Greek or Cyrillic ones."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK", "ARMENIAN"})


def _secret_parameters(tool: LintTool) -> Iterator[ToolFinding]:
    """Find values shown for a parameter that is named like a secret."""
    from ctx_pipeline.tools.schema_walk import properties_of, schemas, show_path

    for path, part in schemas(tool.definition.input_schema or {}):
        for name, parameter in properties_of(part).items():
            if not isinstance(parameter, dict) or not _SECRET_NAME.search(name):
                continue
            shown = cast("dict[str, Any]", parameter)
            values = [
                shown.get("default"),
                shown.get("const"),
                shown.get("example"),
                *_listed(shown.get("examples")),
            ]
            if any(isinstance(value, str) and not _NO_SECRET.search(value) for value in values):
                at = show_path(("input_schema", *path, "properties", name))
                yield tool.finding("secret_value", f"a value is given for {name!r}", at=at)
                return


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
