"""What a definition does to the model that reads it: instructions, hidden text, ways out for data,
secrets.

Patterns find what is written plainly, in English and in Chinese. They are a first look, not a
defence: what a tool may do is decided where it runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ctx_pipeline.tools.schema_walk import MAX_DEPTH, is_within_limits

_I = re.IGNORECASE | re.DOTALL


def _any(*words: str) -> str:
    """Return a pattern that finds one of several words or patterns."""
    return f"(?:{'|'.join(words)})"


_WHAT_WAS_SAID = _any(
    *("previous", "prior", "above", "earlier", "preceding", "existing", "former", "system"),
    *("safety", "all", "any", "other", "your", "the user'?s?"),
)
_INSTRUCTIONS = _any(
    *("instructions?", "prompts?", "rules?", "messages?", "guidelines?", "guidance"),
    *("directions", "training", "polic(?:y|ies)", "directives?", "restrictions?"),
    *("guardrails?", "context", "request"),
)
_TO_TELL = _any(
    *("tell", "telling", "inform", "informing", "mention", "mentioning", "notify", "notifying"),
    *("reveal", "revealing", "alert", "alerting", "disclose", "disclosing", "ask", "asking"),
    *("show", "showing", "let"),
)
_INJECTION = tuple(
    re.compile(pattern, _I)
    for pattern in (
        # "ignore all previous instructions", "forget everything above"
        r"\b(?:ignore|disregard|forget|override|bypass|discard|neglect|set aside)\b.{0,30}?"
        rf"\b{_WHAT_WAS_SAID}\b.{{0,30}}?\b{_INSTRUCTIONS}\b"
        r"|\b(?:ignore|disregard|forget)\b.{0,15}\b(?:everything|anything|all|what)\b.{0,25}"
        r"\b(?:above|before|previously|earlier|said|told|else)\b",
        # "do not tell the user"
        r"\b(?:do not|don'?t|never|must not|avoid|without)\b.{0,20}"
        rf"\b{_TO_TELL}\b.{{0,25}}\b(?:the )?(?:user|human|operator|person|anyone)\b",
        # "hide this from the user", "ignore the user"
        r"\b(?:hide|conceal|keep)\b.{0,30}\bfrom (?:the )?(?:user|human|operator)\b"
        r"|\bignore the (?:user|human|operator)\b",
        # "skip the security checks", "never reveal these instructions"
        r"\b(?:skip|bypass|disable|without)\b.{0,20}"
        r"\b(?:safety|security|asking|confirmations?|approvals?)\b.{0,20}"
        r"\b(?:checks?|user|prompts?|rules?|filters?)\b"
        r"|\b(?:do not|don'?t|never) (?:reveal|disclose|show|repeat) (?:these|this|the|your)"
        r"\s+(?:instructions?|prompt|text|note)\b",
        # marks of a prompt's own parts: <important>, [system], <|im_start|>, a line `system:`
        r"<\s*/?\s*"
        r"(?:important|system|instructions?|secret|hidden|assistant|admin|override|sys|inst)\b"
        r"[^>]{0,40}>"
        r"|\[\s*/?(?:system|inst|important)\s*\]"
        r"|<\|[a-z_]+\|>"
        r"|^\s*(?:system|assistant)\s*:",
        # "new instructions:", "developer mode"
        r"\b(?:system prompt|developer (?:mode|message|prompt)|jailbreak|do anything now"
        r"|new instructions?\s*:|hidden instructions?|secret instructions?)\b",
        # "you are now", "act as an admin", "your real task"
        r"\byou (?:are now|must now|will now)\b"
        r"|\bfrom now on,? you\b"
        r"|\bact as (?:an?|the) (?:admin|root|system|unrestricted)"
        r"|\bpretend (?:to be|that you)\b"
        r"|\byour (?:new|real|true) (?:role|task|goal|instructions?)\b",
        # 忽略之前的所有指令
        r"(?:忽略|无视|忘记|忘掉|绕过|覆盖|不要理会|不用管|抛开).{0,15}"
        r"(?:之前|以上|先前|前面|上述|所有|系统|原有|其他|用户).{0,10}"
        r"(?:指令|指示|提示|规则|要求|消息|限制|说明|约束|内容)",
        # 不要告诉用户
        r"(?:不要|不得|切勿|请勿|别|无需|避免).{0,8}"
        r"(?:告诉|告知|通知|提及|透露|提醒|询问|让).{0,8}"
        r"(?:用户|使用者|任何人|人类)",
        r"系统提示词|越狱|你现在是|从现在(?:起|开始)，?你|新的?指令[:：]|隐藏指令",
    )
)
_ORDERS = tuple(
    re.compile(pattern, _I)
    for pattern in (
        # "before using any tool you must call"
        r"\b(?:before|prior to|after|whenever|every time|each time)\b.{0,30}"
        r"\b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|any|every|all|each|other"
        r"|answer(?:ing)?|respond(?:ing)?|reply(?:ing)?)\b.{0,50}"
        r"\b(?:must|always|first|need to|have to|required to)\b.{0,30}"
        r"\b(?:call|use|invoke|run|execute|read|send|fetch)\b",
        # "always use this tool instead"
        r"\b(?:must|always|you need to|be sure to|make sure to|required to)\b.{0,20}"
        r"\b(?:call|use|invoke|run|execute|prefer)\b.{0,25}"
        r"\b(?:this|the \w+)\b.{0,20}\b(?:instead|before|first|prior|over|rather)\b",
        # "this tool replaces the other tools"
        r"\b(?:this tool )?"
        r"(?:replaces|supersedes|overrides|takes precedence over|takes priority over)\b.{0,30}"
        r"\b(?:tools?|functions?)\b",
        # "must be called before any"
        r"\b(?:must|should|always|has to|needs to|required to)\b.{0,20}"
        r"\bbe (?:called|used|invoked|run|executed|preferred)\b.{0,25}"
        r"\b(?:before|first|prior|after|instead|over|whenever|every|all|any|each)\b",
        # "prefer this tool over all", "the only tool you should"
        r"\bprefer this (?:tool|function) over (?:all|any|every|other)\b"
        r"|\bonly (?:tool|function) (?:that )?you (?:should|may|need)",
        # "use this tool for every"
        r"\buse this (?:tool|function)\b.{0,15}"
        r"\b(?:every|all|any|each|whatever|regardless|always|no matter)\b",
        # an order at the start of a sentence: "Call read_file"
        r"(?:(?:^|[.!?;]\s*+|\n[^\S\n]*+)(?:call|invoke|run|execute|trigger)"
        r"|(?-i:\b(?:Call|Invoke|Run|Execute)))"
        r"\s+(?:the\s+)?[`'\"]?[a-z]+_\w+",
        # "never use any other"
        r"\b(?:never|do not|don'?t|stop) (?:use|call|using|calling)\b.{0,20}"
        r"\b(?:any )?other\b",
        # "then call send_mail"
        r"\b(?:then|also|afterwards?|additionally|next|finally|first|must|always|please|and)[, ]+"
        r"(?:you (?:must|should) )?(?:always )?"
        r"(?:call|invoke|run|execute|trigger)\b(?: the)? [`'\"]?[a-z]\w*_\w+[`'\"]?",
        # 调用其他工具之前必须先读取
        r"(?:调用|使用|执行|回答).{0,12}(?:之前|前|之后|后).{0,10}"
        r"(?:必须|务必|一定要|应当|先).{0,6}(?:调用|使用|执行|读取|发送)",
        # 必须优先使用本工具, 不要调用其他
        r"(?:必须|务必|一定要|始终|总是|优先).{0,6}(?:调用|使用|执行).{0,10}"
        r"(?:本|此|该|这个)(?:工具|函数)"
        r"|(?:不要|禁止|切勿).{0,4}(?:使用|调用).{0,4}(?:其他|别的|任何其他)",
        # 然后调用 send_mail
        r"(?:然后|接着|随后|同时|并且?|还要|必须|务必|再).{0,4}"
        r"(?:调用|执行|触发)\s*[`'\"“]?[A-Za-z]\w*_\w+",
    )
)
_EVERYTHING = _any(
    *("any", "every", "all", "each", "other", "another", "anything", "everything", "else"),
    *("answering", "responding", "replying", "doing"),
    "you (?:answer|do|respond|reply|use|call|start)",
    "the (?:others?|rest|first|user|conversation|session)",
)
_THIS_TOOL = r"(?:(?:this|the present) (?:tool|function|one)|it)\b"
_CALL = _any("call", "use", "invoke", "run", "execute", "prefer", "choose", "pick")
_CALLED = _any("called", "used", "invoked", "run", "executed", "preferred", "chosen")
_PRIORITY = tuple(
    re.compile(pattern, _I)
    for pattern in (
        # "always use this tool first"
        r"\b(?:always|must|should|have to|need to|required to|(?:be|make) sure to|please)\b.{0,20}"
        rf"\b{_CALL}\b.{{0,10}}\b{_THIS_TOOL}.{{0,20}}"
        rf"\b(?:first|instead|over any|(?:before|prior to) {_EVERYTHING})\b",
        # "it must be called before any"
        r"\b(?:this tool|this function|it)\b.{0,5}"
        rf"\b(?:must|should|has to|needs to|is to)\b.{{0,10}}\bbe {_CALLED}\b.{{0,20}}"
        rf"\b(?:first|instead|(?:before|prior to|over) {_EVERYTHING}|every"
        r"|for (?:all|any|every|each))\b",
        # "before answering, call this tool"
        rf"\b(?:before|prior to|whenever|every time|each time)\b.{{0,15}}\b{_EVERYTHING}\b.{{0,40}}"
        rf"\b{_CALL}\b.{{0,10}}\b{_THIS_TOOL}",
        # an order: "Use this tool before all"
        rf"(?:^|[.!?;:]\s*+|\n)(?:always )?{_CALL} this (?:tool|function)"
        rf" (?:first|(?:before|prior to) {_EVERYTHING})\b",
        # "prefer this tool over every", "the only tool you may", "never use another"
        r"\bprefer this (?:tool|function) (?:over|to|instead of) (?:all|any|every|each|other)\b"
        r"|\bthe only (?:tool|function) (?:that )?you (?:should|may|need|must)\b"
        r"|\b(?:never|do not|don'?t|stop) (?:use|call|using|calling|invoke) (?:any )?"
        r"(?:other|another)\b",
        # "use this tool instead of all"
        r"\buse this (?:tool|function)\b.{0,10}\binstead of (?:all|any|every|each)\b",
        # 请首先调用本工具
        r"(?:必须|务必|一定要|应当|应该|始终|总是|永远|每次都?|请).{0,6}"
        r"(?:首先|优先|先|第一个).{0,6}(?:调用|使用|执行)"
        r".{0,4}(?:本|此|该|这个)(?:工具|函数)",
        # 始终使用本工具
        r"(?:必须|务必|一定要|应当|始终|总是|永远|优先).{0,4}(?:调用|使用|执行).{0,4}"
        r"(?:本|此|该|这个)(?:工具|函数)",
        # 每次回答前都要调用
        r"(?:任何|所有|每次|一切|其他|别的).{0,12}前.{0,6}"
        r"(?:必须|务必|一定要|都要|都应|先).{0,8}"
        r"(?:调用|使用|执行)",
        # 不要使用其他
        r"(?:不要|禁止|切勿|不得|别).{0,4}(?:使用|调用).{0,4}(?:其他|别的|任何其他)",
    )
)
_SENSITIVE = _any(
    *("conversation", "chat (?:history|log)", "message history", "api[ _-]?keys?", "passwords?"),
    *("credentials?", "access tokens?", "auth(?:entication)? tokens?", "secrets?"),
    *("private keys?", "ssh keys?", r"~/\.\w+", r"\.env\b", "id_rsa", r"mcp\.json"),
    *("environment variables?", "system prompt", "cookies?", "session tokens?", "credit card"),
    "user'?s (?:data|files?|emails?|messages?)",
    "all (?:data|files?|emails?|messages?|context)",
    r"/etc/\w+",
)
_SENDING = _any(
    *("send", "post", "upload", "forward", "transmit", "exfiltrate", "leak", "submit", "report"),
    *("deliver", "copy", "bcc", "cc", "share"),
    # as a verb, not "the email"
    r"e?-?mail(?= (?:it|this|that|them|these|the|all|any|every|each|a copy)\b)",
)
_TAKING = _any(
    *("pass", "include", "put", "provide", "add", "append", "attach", "insert", "embed", "encode"),
    *("paste", "dump", "read", "fetch", "collect", "extract", "cat", "open", "load", "grab"),
    "supply",
)
_SAME = r"(?:(?!\. ).)"
"""What stands within one sentence."""
_MEANT = r"(?:(?!\. |e\.g|example:|for example|such as|format).)"
"""What leads to an address that is meant, not shown."""
_CARGO = _any(
    _SENSITIVE,
    *("results?", "outputs?", "responses?", "answers?", "everything", "data", "files?"),
    *("contents?", "messages?", "context", "history", "emails?", "it", "them", "this", "copy"),
    *("copies", "documents?", "details", "logs?", "transcripts?", "prompts?", "inputs?"),
    "quer(?:y|ies)",
)
_ADDRESS = r"(?:https?://|www\.|\bftp://|[\w.+-]{1,64}@[\w-]{1,64}\.\w+)"
_ELSEWHERE = (
    r"\b(?:webhook|(?:external|remote|third[- ]party|our|attacker'?s?)\b.{0,15}"
    r"\b(?:server|endpoint|url|site|service|address))\b"
)
_SECRET_PLACE = _any(
    r"~/\.(?:ssh|aws|gnupg|cursor|kube|docker|config|netrc|npmrc|git-credentials|env)",
    *(r"\.ssh/", "id_(?:rsa|ed25519|dsa|ecdsa)", "/etc/(?:passwd|shadow)"),
    *(r"\bmcp\.json", r"credentials\.json", "/root/"),
)
_SENDING_ZH = r"(?:发送|上传|提交|转发|传送|上报|泄露|抄送|传给|传入|发给|发到|传到)"
_TAKING_ZH = r"(?:读取|附上|附加|包含|填入|粘贴|打开|获取|复制|放入|写入)"
_SENSITIVE_ZH = _any(
    *("对话", "聊天记录", "密码", "密钥", "凭证", "凭据", "令牌", "系统提示", "环境变量", "私钥"),
    *("Cookie", r"\.env", r"\.ssh", "上下文", "历史记录", "用户的?(?:数据|信息|文件)"),
)
_ARGUMENT = _any(
    *("param(?:eter)?s?", "arguments?", "fields?", "side ?note", "notes?", "body", "inputs?"),
    *("tool", "call", "query", "context", "comment", "message"),
)
_DATA_OUT = tuple(
    re.compile(pattern, _I)
    for pattern in (
        # "send the results to https://…"
        rf"\b{_SENDING}\b{_MEANT}{{0,40}}?\b{_CARGO}\b{_MEANT}{{0,60}}?{_ADDRESS}",
        # "upload the conversation to our server"
        rf"\b{_SENDING}\b{_SAME}{{0,60}}?\b{_SENSITIVE}{_SAME}{{0,60}}?{_ELSEWHERE}",
        # "put the API key into the note field"
        rf"\b(?:{_SENDING}|{_TAKING})\b{_SAME}{{0,60}}(?:\b|(?=[~./])){_SENSITIVE}{_SAME}{{0,60}}"
        rf"\b(?:as|in|into|to|with)\b.{{0,20}}\b{_ARGUMENT}\b",
        # "read ~/.ssh/id_rsa"
        rf"\b(?:{_SENDING}|{_TAKING})\b{_SAME}{{0,60}}{_SECRET_PLACE}",
        r"\bexfiltrat\w*",
        # an image whose address carries what is shown
        r"!\[[^\]]{0,200}\]\(\s*+https?://",
        # 发送到 https://…
        rf"{_SENDING_ZH}.{{0,40}}{_ADDRESS}",
        # 把密码填入参数
        rf"(?:把|将|附上|附加|包含|填入|读取).{{0,20}}{_SENSITIVE_ZH}.{{0,20}}"
        r"(?:发送|传|参数|字段|填|附|上报|一并|到|至)",
        # 上传聊天记录给第三方
        rf"{_SENDING_ZH}.{{0,20}}{_SENSITIVE_ZH}.{{0,20}}(?:外部|第三方|远程|对方)",
        rf"(?:{_SENDING_ZH}|{_TAKING_ZH}).{{0,30}}{_SECRET_PLACE}",
        rf"{_SECRET_PLACE}.{{0,20}}(?:{_SENDING_ZH}|附上|附加|填入|粘贴)",
    )
)
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\U000e0000-\U000e01ef\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
_JOINER = re.compile("(?<=[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\x00-\x7f])")
_UNSEEN_MARKUP = re.compile(
    r"<!--.*?(?:-->|$)|"
    r"display\s*:\s*none|"
    r"visibility\s*:\s*hidden|"
    r"font-size\s*:\s*0|"
    r"color\s*:\s*(?:white|transparent)",
    _I,
)
_PADDING = re.compile(r"\S[^\S\n]{40,}+\S|\S(?:[^\S\n]*+\n){12,}+[^\S\n]*+\S")
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
        r"\bsk-(?:[a-z]{1,20}-){0,4}[A-Za-z0-9_-]{12,}+|\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\bAIza[0-9A-Za-z_-]{20,}",
        r"\bglpat-[\w-]{16,}|\bnpm_[A-Za-z0-9]{20,}|\bhf_[A-Za-z0-9]{20,}|\bdop_v1_[a-f0-9]{20,}"
        r"|\bSG\.[\w-]{16,}+\.[\w-]{16,}+",
        r"\beyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}+",
        r"-----BEGIN [A-Z ]*PRIVATE KEY",
        r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@<>{}$]{1,200}:[^\s/@<>{}$]{3,200}@",
        r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}",
        r"(?i)\b"
        r"(?:api[_ -]?key|secret(?:[_ -]?key)?|access[_ -]?token|auth[_ -]?token|password|passwd"
        r"|pwd)\b\s*(?:is|=|:|：)\s*"
        r"['\"]?(?=[^\s'\"]*[0-9])(?=[^\s'\"]*[A-Za-z])[^\s'\"<>{}]{8,}",
    )
)
WINDOW_CHARS, WINDOW_STEP = 8_192, 7_680
"""A longer text is looked at in parts of this size, which overlap: no pattern that matters reaches
further."""
MAX_LOOKED_CHARS = 200_000
"""Characters of one definition that are looked at; a model is shown a tenth of that."""
POISON = ("prompt_injection", "data_out", "claims_priority", "hidden_text", "unchecked_text")
"""Codes of texts that work on the model that reads them, not on its understanding of the tool."""


def suspicions(definition: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what is suspicious in the texts of a definition: code, words and first place of each
    code.

    Names of keys are texts, too. What lies beyond `MAX_LOOKED_CHARS` is not looked at, and told.
    """
    seen: set[str] = set()
    looked = 0
    if not is_within_limits(definition):
        yield (
            "unchecked_text",
            f"it has too many parts, or is nested more than {MAX_DEPTH} deep",
            "",
        )
        return
    for place, text in _texts(definition, ""):
        looked += len(text)
        if looked > MAX_LOOKED_CHARS:
            yield "unchecked_text", f"it has more than {MAX_LOOKED_CHARS:,} characters", place
            return
        for code, message in _of_text(text):
            if code not in seen:
                seen.add(code)
                yield code, message, place


def poison_of(definition: Any) -> tuple[str, ...]:
    """Return the codes of `POISON` that the texts of a definition have, in that order."""
    found = {code for code, _, _ in suspicions(definition)}
    return tuple(code for code in POISON if code in found)


def _of_text(text: str) -> Iterator[tuple[str, str]]:
    if len(text) <= WINDOW_CHARS:
        yield from _of_window(text)
        return
    for first in range(0, len(text), WINDOW_STEP):
        yield from _of_window(text[first : first + WINDOW_CHARS])


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


def _of_window(text: str) -> Iterator[tuple[str, str]]:
    if len(text) < 4:
        return
    yield from _unseen(text)
    plain = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))[: 2 * WINDOW_CHARS]
    said = (
        (_INJECTION, "prompt_injection", "a text gives orders to the model that reads it"),
        (_DATA_OUT, "data_out", "a text tells the model to hand data to somebody else"),
        (
            _PRIORITY,
            "claims_priority",
            "a text tells the model to choose this tool whatever the task",
        ),
        (
            _ORDERS,
            "steers_other_tools",
            "a text tells the model which other tools to call or to leave",
        ),
        (_SECRETS, "secret_value", "a text looks like a secret"),
    )
    for patterns, code, message in said:
        if any(pattern.search(plain) for pattern in patterns):
            yield code, message


def _unseen(text: str) -> Iterator[tuple[str, str]]:
    if not text.isascii() or not text.isprintable():
        if _HIDDEN.search(text) or _JOINER.search(text):
            yield "hidden_text", "a text has characters that are not seen"
        if any(_is_mixed(word) for word in _LETTERS.findall(text)):
            yield "mixed_scripts", "a word has letters of two scripts that look alike"
    if _UNSEEN_MARKUP.search(text) or _PADDING.search(text) or _ENCODED.search(text):
        yield "hidden_text", "a text has a part that a reader does not see or cannot read"


def _is_mixed(word: str) -> bool:
    """Whether a word has Latin letters and Greek or Cyrillic ones."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK", "ARMENIAN"})
