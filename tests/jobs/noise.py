"""The noise of a measurement by why_slow.sh or fabric_ab.sh. On a machine that other programs use, a test of what they measure
is skipped: planted slowness is then no larger than the noise."""
import re

MOST = 30  # per cent
ROW = re.compile(r"^\S+ +\S+ +[+-]\d+\.\d +(\d+\.\d) +(?:faster|slower|no difference)", re.MULTILINE)


def skip_if_busy(test, said):
    """`said`: the table of results, with the noise of each variant."""
    noise = max(map(float, ROW.findall(said)), default=0)
    if noise > MOST:
        test.skipTest(f"this machine is too busy to measure: the noise is {noise} %")
