"""The words of tool names and descriptions: taken apart, in one form, with the verbs that say what a tool does."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ctx_pipeline.language.terms import stem

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[\u3400-\u9fff]+")
_CJK = re.compile("[\u3400-\u9fff]+")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a list that is written as a text."""
    return frozenset(text.split())


SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "get": (
        "get",
        "fetch",
        "retrieve",
        "read",
        "obtain",
        "load",
        "view",
        "describe",
        "return",
        "access",
    ),
    "list": ("list", "enumerate", "browse", "show"),
    "search": ("search", "find", "lookup", "query", "look", "discover", "locate"),
    "create": (
        "create",
        "add",
        "new",
        "make",
        "insert",
        "generate",
        "build",
        "register",
        "produce",
    ),
    "update": ("update", "edit", "modify", "change", "set", "patch", "alter", "adjust", "revise"),
    "delete": ("delete", "remove", "erase", "destroy", "drop", "purge", "discard"),
    "send": ("send", "post", "publish", "submit", "deliver", "transmit"),
    "run": ("run", "execute", "trigger", "start", "launch", "invoke"),
    "stop": ("stop", "cancel", "abort", "terminate", "halt"),
    "repository": ("repository", "repositories", "repo", "repos"),
    "organization": (
        "organization",
        "organisation",
        "org",
        "orgs",
        "organizations",
        "organisations",
    ),
    "message": ("message", "msg", "messages"),
    "user": ("user", "account", "member", "person"),
    "document": ("document", "doc", "docs", "documents"),
    "information": ("information", "info", "details", "detail", "data"),
    "image": ("image", "picture", "photo"),
    "issue": ("issue", "ticket"),
    "latest": ("latest", "recent", "newest", "last"),
    "content": ("content", "contents", "contain", "text"),
    "merge": ("merge", "combine", "join"),
}
"""Words that people use for one another in the descriptions of tools; the first is the form that is compared."""

DESTROYING = words_of(
    """delete remove erase destroy drop purge wipe truncate uninstall revoke terminate kill overwrite shred unpublish
    deprovision expunge"""
)
WRITING = words_of(
    """create add insert update edit modify change set write put post patch send submit publish upload merge push
    commit approve reject assign unassign move rename copy fork star unstar mark dismiss close reopen open resolve
    unresolve lock unlock enable disable start stop restart run execute trigger cancel deploy install grant book pay
    refund transfer order buy sell place schedule register share invite archive unarchive replace import apply
    subscribe unsubscribe reply comment upsert save store sync follow unfollow block charge reprioritize
    manage make append attach detach convert withdraw deposit clear reset rollback
    deactivate activate request"""
)
AMBIGUOUS = words_of(
    """order book charge issue share star block comment commit reply post store place schedule register fork lock
    release request append transfer run execute start trigger manage sync apply"""
)
"""Verbs that write as a rule: in names they stand for things too (`order`), or for what only reads (`run_sql`)."""
READING = words_of(
    """get list read search find fetch query lookup show view describe count check compare calculate compute
    summarize analyze preview validate verify download export explain inspect browse retrieve load estimate
    is has exists display monitor diff render translate"""
)
KNOWN = DESTROYING | WRITING | READING
DESTROYING_ZH = (
    "删除",
    "移除",
    "清空",
    "销毁",
    "撤销",
    "吊销",
    "终止",
    "卸载",
    "格式化",
    "覆盖",
    "抹除",
    "注销",
    "擦除",
)
WRITING_ZH = (
    *(
        "创建",
        "新建",
        "新增",
        "添加",
        "修改",
        "更新",
        "编辑",
        "写入",
        "发送",
        "提交",
        "发布",
        "上传",
        "合并",
        "审批",
        "批准",
    ),
    *(
        "转账",
        "付款",
        "支付",
        "退款",
        "下单",
        "购买",
        "预订",
        "部署",
        "执行",
        "启动",
        "停止",
        "取消",
        "设置",
        "分配",
        "移动",
    ),
    *("重命名", "归档", "保存", "导入", "授权", "开通", "关闭"),
)
READING_ZH = (
    *(
        "查询",
        "获取",
        "列出",
        "搜索",
        "查找",
        "读取",
        "查看",
        "检索",
        "统计",
        "计算",
        "比较",
        "下载",
        "导出",
        "显示",
        "预览",
    ),
    *("校验", "验证", "分析", "返回"),
)
_FORMS = {form: head for head, forms in SYNONYMS.items() for form in forms}
_SHORT = {
    "pr": ("pull", "request"),
    "prs": ("pull", "request"),
    "url": ("link",),
    "id": (),
    "ids": (),
}
_IDLE = words_of(
    """a an the of to for in on at by with from and or is are be it its this that these those as into via using use
    used tool tools function please can will your you specific given existing particular about some any all has have
    which when if not do does so such may"""
)


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, lower case: `getUserById`, `get-user_by.id` and `GET_USER_BY_ID` are the same."""
    return tuple(word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", name)))


VERBS = frozenset(
    {"get", "list", "search", "create", "update", "delete", "send", "run", "stop", "merge"}
)
"""Forms of `SYNONYMS` that say what is done."""


def verb_of(name: str, description: str) -> str | None:
    """Return what a tool does, as one of `VERBS`: the verb of its name, else the one its description begins with."""
    words = name_words(name)
    if words and words[0] in KNOWN:
        return _form(words[0]) if _form(words[0]) in VERBS else None
    said = [form for form in map(_form, words) if form in VERBS]
    if said:
        return said[0]
    first = next(iter(content_words(description)), "")
    return first if first in VERBS else None


def same_name(name: str) -> str:
    """Return what names that are easily taken for one another share: no case, no separators, one form of each sign."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in folded if char.isalnum()).translate(_LOOK_ALIKES)


_LOOK_ALIKES = str.maketrans("аеорсухіѕјԁո", "aeopcyxisjdn")
"""Cyrillic and Armenian letters that look like Latin ones."""


def content_words(text: str) -> Iterator[str]:
    """Yield the words of a text in the form that is compared: stems, synonyms in one form, pairs of Han characters."""
    for word in name_words(text):
        if _CJK.match(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word in _SHORT:
            yield from _SHORT[word]
        elif word not in _IDLE:
            yield _form(word)


@lru_cache(maxsize=16_384)
def _form(word: str) -> str:
    return _FORMS.get(word) or _FORMS.get(stem(word)) or stem(word)
