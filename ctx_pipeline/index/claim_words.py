"""Words that claims are compared by: what means the same in English and Chinese, and what says nothing of a claim."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ctx_pipeline.index.analysis import terms

CLAIMS_VERSION: Final = "1"
"""Changes with what `claims.claims_table` finds in a text, and with how `contested.contested_table` compares it."""

_CONCEPTS: Final = """
refund: refund reimbursement | 退款 退费
return: return | 退货
cancel: cancel cancellation canceled | 取消
tax: tax vat taxes | 增值税 税费 税金 税
shipping: shipping freight postage | 运费 邮费 配送费 快递费
discount: discount coupon voucher promotion promo rebate | 折扣 优惠券 代金券 优惠 促销
order: order purchase | 订单 下单
pay: pay payment | 付款 支付
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
deliver: delivery deliver | 送达 配送 送货 交付
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
"""

_FILLERS: Final = """
have has had get give given offer last set apply applied use remain stay equal current now today always general usual
typical standard official note please accord confirm say state think believe seem maybe probably also still only it its
per within up most than more made make run stand take takes company policy rule when already been being become fixed define
configure specify actually really exactly precise simply just officially team we our us they them you your whole full
following document handbook guide customer user allow entitled can may must should shall will would about around one every each any
all both know known remember remind reminder learned heard told last updated update effective since start starting
from begin as of after before count amount come
"""
_CHINESE_FILLERS: Final = (
    "好像|似乎|目前|现在|当前|现行|一般|通常|应该|应当|统一|规定|设定|设置|我们|公司|请注意|注意|根据|据|按照|按|已经|已|均|"
    "共计|共|达到|可以|可享受|享有|拥有|以内|之内|内|最多|至多|不超过|官方|标准|全部|所有|都|只|需要|需|须|记得|听说|确认|口径|"
    "大约|左右|自|起|有|到|计算|计|里|中|上|下|时|后|前|对|向|从"
)
_FUNCTION: Final = frozenset(
    "的了是为在于和与及或把被将就也而其该此这那个们地得着过吗呢吧啊之以所,、。，;；:：\"'()（）「」《》"
)

_RUN = re.compile(r"[a-z][a-z']*(?:[0-9]+[a-z0-9]*)?|[0-9][0-9a-z.:/-]*|[\u3400-\u9fff]+")


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
FILLERS: Final = frozenset(_ENGLISH_OF.get(_stem(word), _stem(word)) for word in _FILLERS.split()) - {
    "window",
    "retention",
    "accept",
    "account",
}
"""Words that may come and go without changing what is claimed."""
_FILLER_PHRASES = re.compile(_CHINESE_FILLERS)


def folded(text: str) -> str:
    """Return text as claims are read in it: NFKC, lower case."""
    return unicodedata.normalize("NFKC", text).lower()


def words(text: str) -> list[str]:
    """Return the words of a folded text in order: stems, concepts for what both languages name, else characters."""
    return list(_words(text))


def _words(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text.replace("_", " ")):
        run = match.group()
        if run[0].isascii():
            word = _stem(run.removesuffix("'s")) if run[0].isalpha() else run.rstrip(".:/-")
            if word:
                yield _ENGLISH_OF.get(word, word)
        else:
            yield from _chinese(run)


def _chinese(run: str) -> Iterator[str]:
    at = 0
    while at < len(run):
        phrase = _PHRASES.match(run, at)
        if phrase:
            yield _CHINESE_OF[phrase.group()]
            at = phrase.end()
            continue
        filler = _FILLER_PHRASES.match(run, at)
        if filler:
            yield f"~{filler.group()}"
            at = filler.end()
            continue
        if run[at] not in _FUNCTION:
            yield run[at]
        at += 1


def is_filler(word: str) -> bool:
    """Return whether a word of `words` says nothing of a claim."""
    return word[0] == "~" or word in FILLERS
