"""verifySign of the known vector (the last paragraph of the interface's gaps) against the leanest
Python and the `yuansfer` SDK.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5
from typing import Final

from yuansfer.client import Client

from tillgate.wire import signing
from tools.benchmarks.measure import Effort, expect, mean_call, take_turns
from tools.benchmarks.report import Figure, Section

__all__ = ["run"]

TOKEN: Final = "5cbfb079f15b150122261c8537086d77a"
SIGNATURE: Final = "b6bfd66531ae7c9499115c7480a2c8aa"
PARAMETERS: Final = {
    "amount": "1.00",
    "storeNo": "300014",
    "currency": "USD",
    "merchantNo": "200043",
    "callbackUrl": "https://wx.yuansfer.yunkeguan.com/wx",
    "ipnUrl": "https://wx.yuansfer.yunkeguan.com/wx",
    "terminal": "ONLINE",
    "reference": "seq_1525922323",
    "vendor": "alipay",
    "goodsInfo": '[{"goods_name":"Yuansfer","quantity":"1"}]',
    "timeout": "120",
}


def leanest(parameters: dict[str, str], token: str) -> str:
    """Sign without any check, a sorted join and two digests: the floor."""
    text = "&".join(map("=".join, sorted(parameters.items())))
    return md5(f"{text}&{md5(token.encode()).hexdigest()}".encode()).hexdigest()


def tuned(parameters: dict[str, str], token: str) -> str:
    """Sign like `leanest`, with every line timed against its alternatives until nothing more came
    off.
    """
    parts = [f"{name}={parameters[name]}" for name in sorted(parameters)]
    parts.append(md5(token.encode()).hexdigest())
    return md5("&".join(parts).encode()).hexdigest()


def run(effort: Effort) -> Section:
    """Measure."""
    sdk = Client(
        merchantNo=PARAMETERS["merchantNo"],
        storeNo=PARAMETERS["storeNo"],
        token=TOKEN,
    ).online
    calls: dict[str, Callable[[], object]] = {
        "tillgate": lambda: signing.sign(PARAMETERS, TOKEN),
        "leanest Python": lambda: leanest(PARAMETERS, TOKEN),
        "the same, tuned": lambda: tuned(PARAMETERS, TOKEN),
        "yuansfer SDK": lambda: sdk.verify_sign_method(PARAMETERS),
    }
    for name, call in calls.items():
        expect(name, call(), SIGNATURE)
    rounds, repeats = effort.pick(400, 3), effort.pick(1000, 200)
    series = take_turns(
        "sign",
        {name: mean_call(call, repeats) for name, call in calls.items()},
        rounds,
        effort,
    )
    return Section(
        name="sign",
        title="Signing",
        about="`signing.sign` of the 11 parameters of the known vector. The leanest Python is a "
        "sorted join and two `hashlib.md5`,\n"
        "without a check; tuned, it is the fastest spelling that we found. Tillgate also leaves "
        "out empty parameters and names\n"
        "a faulty one.",
        repetitions=f"{rounds} rounds of {repeats} signatures each.",
        figures=[
            Figure.cost(
                "`sign`: time of the leanest Python",
                series.cost("tillgate", "leanest Python"),
                at_most=1.0,
            ),
            Figure.cost(
                "`sign`: time of the same, tuned",
                series.cost("tillgate", "the same, tuned"),
            ),
            Figure.speed(
                "`sign`: speed of the `yuansfer` SDK's signing",
                series.speed("tillgate", "yuansfer SDK"),
                at_least=2.5,
            ),
        ],
        bars={name: series.median(name) * 1e6 for name in calls},
        unit="microseconds of CPU for one signature (shorter is better)",
    )
