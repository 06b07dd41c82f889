"""Words that claims are compared by: what means the same in English and Chinese, and what says nothing of a claim."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ctx_pipeline.language.terms import terms

CLAIMS_VERSION: Final = "4"
"""Changes with what `claims.claims_table` finds in a text, and with how `contested.contested_table` compares it."""

_CONCEPTS: Final = """
refund: refund reimbursement | 退款 退费
return: return | 退货
cancel: cancel cancellation canceled | 取消
tax: tax vat taxes | 增值税 税费 税金 税
shipping: shipping freight postage | 运费 邮费 配送费 快递费
discount: discount coupon voucher promotion promo rebate | 折扣 优惠券 代金券 优惠 促销
order: order purchase | 订单 下单
pay: pay payment | 付款 支付 付清 结清 缴纳
customer: customer client buyer shopper | 客户 顾客 买家 消费者
user: user | 用户
window: window period timeframe deadline | 期限 时限 窗口期 窗口 期间
limit: limit cap ceiling maximum max | 上限 限额 限制 最大值
minimum: minimum min floor | 下限 最小值 起步
fee: fee charge surcharge | 手续费 费用 收费
rate: rate ratio percentage share | 费率 比率 比例 占比
threshold: threshold | 门槛 阈值
retention: retention retain keep kept store | 保留 保存 留存
timeout: timeout | 超时时间 超时
batch: batch | 批次 批量
size: size | 大小 尺寸
retry: retry retries attempt | 重试
session: session | 会话
password: password passphrase | 密码 口令
token: token | 令牌
log: log | 日志
backup: backup | 备份
warranty: warranty guarantee | 保修期 保修 质保期 质保
trial: trial | 试用期 试用
account: account | 账户 账号 帐户 帐号
deliver: delivery deliver receipt received | 送达 配送 送货 交付 收货 签收
ship: ship dispatch | 发货
invoice: invoice bill | 发票 账单
report: report | 报表 报告
data: data | 数据
online: online | 线上 在线
offline: offline | 线下
store: shop | 门店 店铺
member: member membership | 会员
employee: employee staff | 员工 雇员 职员
expire: expire expiry expiration | 过期 到期 失效
valid: valid validity | 有效期 有效
interval: interval frequency | 间隔 频率
request: request | 请求
connection: connection | 连接
cache: cache | 缓存
file: file document | 文件 文档
upload: upload | 上传
download: download | 下载
test: test | 测试
internal: internal | 内部
gift: gift | 礼品 赠品
card: card | 卡
sale: sale sales | 销售额 销售
revenue: revenue turnover | 收入 营收
profit: profit | 利润
price: price | 价格 单价
quantity: quantity number count | 数量 个数 数 量
amount: amount value sum | 金额 数额 值
leave: leave vacation holiday | 休假 年假 假期
supplier: supplier vendor | 供应商
partner: partner merchant | 合作商家 商家 合作伙伴
product: product item goods article | 商品 产品
total: total overall | 总计 合计 总
project: project | 项目
review: review | 审核 评审
approve: approve approval | 批准 审批
export: export | 导出
import: import | 导入
delete: delete erase removal | 删除
encrypt: encrypt encryption | 加密
share: sharing | 共享
access: access | 访问
login: login signin | 登录
email: email mail | 邮件 邮箱
meeting: meeting | 会议
budget: budget | 预算
contract: contract agreement | 合同 协议
notice: notice | 通知
query: query | 查询
table: table | 表
row: row | 行
column: column field | 列 字段
column_key: primary | 主键
node: node | 节点
memory: memory ram | 内存
disk: disk | 磁盘
speed: speed | 速度
average: average mean avg | 平均
weekend: weekend | 周末
new: new | 新
accept: accept take | 接受 受理 接收
offer: provide | 提供
support: support | 支持
transaction: transaction trade deal | 交易
cost: cost | 成本
open: open launch | 打开
install: install installation | 安装
register: register signup registration | 注册
active: active | 活跃
visit: visit | 访客 浏览
marketing: marketing | 营销
"""

_FILLERS: Final = """
have has had get give given offer last set apply applied use remain stay equal current now today always general usual
typical standard official note please accord confirm say state think believe seem maybe probably also still only it its
per within up most than more made make run stand take takes company policy rule when already been being become fixed
define configure specify actually really exactly precise simply just officially team we our us they them you your whole
full following document handbook guide customer user allow entitled can may must should shall will would about around
one every each any all both know known remember remind reminder learned heard told last updated update effective since
start starting from begin as of after before count amount come well too here there this that these those most average
"""
_VERBS: Final = """
amount stand equal last run remain come sit span extend extended change move raise lower increase decrease reduce
shorten lengthen adjust set fix define agree decide enjoy receive grant offer give get have use need compute calculate
measure report derive work figure express know learn remember expect become be make keep hold stay state mention quote
list name call give go see put bring take apply allow provide enforce follow treat went rose fell grew came became got
had made took gave kept held stood ran cut climb drop jump start end stop require demand want like happen mean show
count cap limited has have been will would can could may might must shall should do does did specify
"""
"""What is done with a value: it does not matter which of them a text says between a named subject and its value."""
_LIMITERS: Final = """
vip premium gold silver basic enterprise business personal standard new existing old member membership student senior
child adult manager director employee contractor intern partner supplier seller merchant wholesale retail online offline
shop app web mobile domestic international overseas foreign local national east west north south northeast northwest
southeast southwest central china europe asia america us eu uk electronic grocery apparel fashion food book digital
weekend weekday holiday summer winter free paid trial pilot guest admin owner staging production test internal external
"""
"""Who and where: such a word before a named subject limits it, however far from it."""
_CHINESE_FILLERS: Final = (
    "好像|似乎|目前|现在|当前|现行|如今|一般|通常|应该|应当|统一|一律|规定|设定|设置|设|定|调整|修改|变更|改|更新|延长|缩短|"
    "提高|降低|上调|下调|维持|保持|执行|约定|确定|我们|咱们|公司|请注意|请|注意|知悉|根据|据|按照|按|已经|已|均|共计|一共|总共|"
    "合计|共|达到|可以|可享受|享有|拥有|以内|之内|内|最多|至多|不超过|官方|标准|全部|所有|都|只|需要|需|须|要|记得|听说|确认|口径|"
    "大约|左右|自|起|有|到|至|计算|核算|统计|计|算|里|中|上|下|时|后|前|向|从|还|仍然|仍|依然|一直|固定|现|再|客户|用户|手册|文档|"
    "一般来说|每位|每个|一个|进行|采用|使用|结果|数值|数字"
)
_LIMITING: Final = frozenset(
    [
        "for",
        "in",
        "at",
        "on",
        "under",
        "during",
        "when",
        "if",
        "unless",
        "except",
        "via",
        "with",
        "across",
        "among",
    ]
)
_LINKING: Final = frozenset(["of", "from", "after", "following", "upon", "since"])
_COPULAS: Final = frozenset(["is", "are", "was", "were", "be", "been", "being", "equals", "means"])
_COPULAS_ZH: Final = frozenset("为是")
_REPORTING_ZH = re.compile("表示|认为|提到|指出|强调|说|记录|写明|写着")
_LIMITING_ZH = re.compile("对于|针对|如果|只有|除了|对|在|当|若|仅|除|以")
_FUNCTION: Final = frozenset(
    "的了于和与及或把被将就也而其该此这那个们地得着过吗呢吧啊之所,、。，;；:：\"'()（）「」《》"
)

QUANTITY: Final = "\ue000"
"""Stands in a text where a quantity was."""
_RUN = re.compile(
    rf"{QUANTITY}|=|[a-z][a-z']*(?:[0-9]+[a-z0-9]*)?|[0-9][0-9a-z.:/-]*|[\u3400-\u9fff]+"
)


def _table() -> tuple[dict[str, str], dict[str, str]]:
    english: dict[str, str] = {}
    chinese: dict[str, str] = {}
    for line in _CONCEPTS.strip().splitlines():
        concept, _, names = line.partition(":")
        words, _, phrases = names.partition("|")
        for word in words.split():
            english[_stem(word)] = concept
        for phrase in phrases.split():
            chinese[phrase] = concept
    return english, chinese


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    found = terms(word)
    return found[0] if found else ""


_ENGLISH_OF, _CHINESE_OF = _table()
_PHRASES = re.compile("|".join(sorted(map(re.escape, _CHINESE_OF), key=len, reverse=True)))
CONCEPTS: Final = frozenset(_CHINESE_OF.values())
"""What a word of both languages is compared as."""
FILLERS: Final = frozenset(
    _ENGLISH_OF.get(_stem(word), _stem(word)) for word in _FILLERS.split()
) - {
    "window",
    "retention",
    "accept",
    "account",
}
"""Words that may come and go without changing what is claimed."""
VERBS: Final = frozenset(_ENGLISH_OF.get(_stem(word), _stem(word)) for word in _VERBS.split()) - {
    "retention"
}
LIMITERS: Final = frozenset(
    _ENGLISH_OF.get(_stem(word), _stem(word)) for word in _LIMITERS.split()
) | frozenset("东西南北华")
_FILLER_PHRASES = re.compile(_CHINESE_FILLERS)


def folded(text: str) -> str:
    """Return text as claims are read in it: NFKC, lower case."""
    return unicodedata.normalize("NFKC", text).lower()


def words(text: str) -> list[str]:
    """Return the words of a folded text in order: stems, concepts for what both languages name, else characters."""
    return [word for word in marked(text) if not is_mark(word)]


def marked(text: str) -> list[str]:
    """Return the words of a folded text with marks of how they are joined.

    `<for` before what limits, `<of` before what belongs, `<that` after who says so, `<is` for a copula, `<q` for a
    quantity, `_` for other small words.
    """
    return list(_marked(text))


def is_mark(word: str) -> bool:
    """Return whether an entry of `marked` is no word."""
    return word == "_" or word[0] == "<"


def is_filler(word: str) -> bool:
    """Return whether a word of `words` says nothing of a claim."""
    return word[0] == "~" or word in FILLERS


def is_limiter(word: str) -> bool:
    """Return whether a word of `words` names whom or where something holds for."""
    return word in LIMITERS


def is_verb(word: str) -> bool:
    """Return whether a word of `words` only ties a value to what has it."""
    return word[0] == "~" or word in VERBS


def _marked(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text.replace("_", " ")):
        run = match.group()
        if run == QUANTITY:
            yield "<q"
        elif run == "=" or run in _COPULAS:
            yield "<is"
        elif run[0].isascii():
            yield from _english(run)
        else:
            yield from _chinese(run)


def _english(run: str) -> Iterator[str]:
    if run in _LIMITING:
        yield "<for"
    elif run in _LINKING:
        yield "<of"
    elif run == "that":
        yield "<that"
    else:
        word = _stem(run.removesuffix("'s")) if run[0].isalpha() else run.rstrip(".:/-")
        yield _ENGLISH_OF.get(word, word) if word else "_"


def _chinese(run: str) -> Iterator[str]:
    at = 0
    while at < len(run):
        phrase = _PHRASES.match(run, at)
        if phrase:
            yield _CHINESE_OF[phrase.group()]
            at = phrase.end()
            continue
        for pattern, mark in (
            (_REPORTING_ZH, "<that"),
            (_FILLER_PHRASES, "~"),
            (_LIMITING_ZH, "<for"),
        ):
            found = pattern.match(run, at)
            if found:
                yield mark if mark != "~" else f"~{found.group()}"
                at = found.end()
                break
        else:
            char = run[at]
            yield "<is" if char in _COPULAS_ZH else "_" if char in _FUNCTION else char
            at += 1
