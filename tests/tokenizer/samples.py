"""Texts and tokenizers for the tests of lib/files/tokenizer, and the program that runs ours."""
import json
import os
import pathlib
import random
import struct
import subprocess

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
DRIVER = os.environ["ARGOSY_TOKENIZER_DRIVER"]
LONG = "ARGOSY_TOKENIZER_LONG" in os.environ  # many more random texts

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# The patterns that these tokenizers publish. GPT-2's is built into the stage ByteLevel.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": rf"{CONTRACTIONS}|{LETTERS}\p{{L}}+|\p{{N}}{{1,3}}|{REST}",
    "qwen2": rf"{CONTRACTIONS}|{LETTERS}\p{{L}}+|\p{{N}}|{REST}",
    "gpt4o": rf"{LETTERS}{UPPER}*{LOWER}+{CONTRACTIONS}?|{LETTERS}{UPPER}+{LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}|"
             r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "punctuation": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                   r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

SENTENCES = """The quick brown fox can't jump; it's JUMPED, I'LL say, we'Ve 'sſ 'ſ ſ's K'LL.
Ünïcödé Straße ŉ ǅ ǆ Ǆ ﬁ ﬃ ﬅ ẞ İi̇ ıI Å Å Å Ω Ω é é ḍ̇ ḍ̇ q̣̇ ạ̈̄
Ελληνικά κείμενα, ϐ ς σ Σ. Русский текст, ѣ і Ѹ. Հայերեն և. ქართული ᲥᲐᲠᲗᲣᲚᲘ. ⲁⲃⲅ ᎠᎡᎢ ꭰꭱ.
עברית שָׁלוֹם, العربية مَرْحَبًا ٠١٢٣٤٥ ۰۱۲۳ پارسی ی‌ک لا الله ﷺ. ܣܘܪܝܝܐ ދިވެހި ߒߞߏ ࠔࠌࠓࠉ.
हिन्दी क़ क़ ड़ ०१२३ বাংলা ো ো ৪৫৬ ਪੰਜਾਬੀ ગુજરાતી ଓଡ଼ିଆ தமிழ் ௧௨ ௰ తెలుగు ಕನ್ನಡ മലയാളം ൏ සිංහල.
ไทย ภาษาไทย ๑๒๓ ລາວ ບໍ່ ຳ བོད་ཡིག ཨོཾ ཱི ཱི မြန်မာ ကျွန်တော် ខ្មែរ ក្រុង ᬩᬮᬶ ꦗꦮ ᠮᠣᠩᠭᠣᠯ\u180e\u180b ᥖᥭᥰ.
汉语 漢字 㐀𠀀𪛖 豈 福 〇一二三 １２３ ＡＢＣａｂｃ ｶﾞ ガ が ヷ ひらがな カタカナ・ー ㌔ ㍿ ㄅㄆㄇ 한국어 한국어 각 각ᆨ ㄱㄴ ꥠힰ퟇.
አማርኛ ፩፪፫ ⴰⵎⴰⵣⵉⵖ ꔀꔁ 𐌰𐌱 𐎀𐎁 𒀀𒁀 𓀀𓁀 𝐀𝒜𝔄 𝟘𝟙𝟚 𑄀𑄮 𑤸 𑤸 𞤀𞤢 𞓐𞓑 𐵀 𞗰 𖹀𖹠 ⅠⅡⅷↈ ①②⒈⓪ ½¾¹²³ ৴ ௲ 〡〢 ꘠꘡.
👩‍👩‍👧‍👦 👨🏽‍🚀 🏳️‍🌈 🇩🇪🇫🇷 👍🏿 ❤️ ☠︎ 1️⃣ #️⃣ 🧑🏻‍❤️‍💋‍🧑🏼 🫠🪿🫨 ⌚⏰ ㊗️ ⁉️‼ 🏴󠁧󠁢󠁥󠁮󠁧󠁿
$€£¥₿ ∑∫√∞≠≤ ←↑→↓ «‹„“”‚‘’›» … — – ‐ ‒ ― ¿¡ § ¶ † ‡ • · ° ′″ © ® ™ № ½% ‰ ☃ ♥ ★ ✓ ✗ ░▒▓ ⠓⠑ 𝄞𝅘𝅥𝅮 🂡 🀄 ⃝a⃝
    def f(x):\n\t\treturn  {'a': [1,2.5e-10, 0xFF]}  # it's\n\n\n  \r\n \r\r\n\n   end   \n""".split("\n") + [
    "", " ", "  ", "\n", "\r\n\r\n", "\t \t", " a", "a ", "  a  b   c    ", "\n\n a \n b\n  \nc", "'", "''s", "a's'S'Ll'lL'VE'm'D'RE'x",
    "'\u017f", "it'\u017f \u212a'll '\u212a", "\u00a0x\u2003y\u3000 z\u1680\u2028w\u2029\u205f\u202f!",
    "\u0085a\u0085\u0085 b\u180e\u180e c\u200b\u200c\u200d\u2060\ufeff d\u00ad", "\0\1\2\x1f\x7f\x80\x9f\u0600\u06dd\ue000\uffff",
    "\U0010ffff\U000e0001\U000f0000\ufffd\ufffe", "e\u0301\u0323\u0300 \u0344 a\u0315\u0300\u05ae\u0062 \u1100\u1161\u11a8\u11a8 \uac00\u11a7\u11a8",
    "\u0f71\u0f72\u0f74 \u0dd9\u0dca \u09c7\u09be \u1b05\u1b35 \U00011099\U000110ba \U00011131\U00011127 \u2adc \U0001d15e \ufb1d\ufb2a",
    "x" * 5000, "ab" * 3000, " " * 4001 + "x", "\n" * 3000, " \n" * 2000, "1234567890" * 400, "\u00e9" * 2000, "e\u0301" * 1500, "\U0001f600" * 900,
    "a" + "\u0301" * 700 + "\u0323" * 700, "'s" * 1000, "." * 3000, "-" * 79 + "\n" + "=" * 79 + "\r\n", "Aa" * 1000, "\t" * 1000 + "\r" * 10 + "!" * 20]

# Pools of characters for random texts.
POOLS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "  \n\n\r\t\v\f", "'\u2019\"", "stmdreltvSTMDLRVEk\u017f\u212a",
    "!#$%&()*+,-./:;<=>?@[\\]^_`{|}~", "\u00a0\u0085\u180e\u2028\u2029\u3000\u200b\u200c\u200d\ufeff\u2003\u1680",
    "\u0300\u0301\u0323\u0327\u0308\u0345\u05b0\u064b\u093c\u0e38\u0f71\u0f72\u302a\u20d0\U0001d165\u0653\u0338",
    "\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\uac01\ud7a3\ua960\ud7b0", "\u00e9\u00c5\u01d5\u1e9b\u212b\u2126\u0958\u0dda\u09cb\u1fee\u0340\u0344\uf900\ufb1d\U0002f800",
    "\u0633\u0644\u0627\u0660\u06f1\u05d0\u0905\u0966\u0e01\u0e51\u4e00\u3042\u30a2\u3007\u2167\u00b2\u00bd\U0001f600\U0001f3fd\ufe0f\U0001f1e9\u2126",
    None]  # any code point


def random_texts(count, seed):
    """Texts of up to 40 characters from a few pools each."""
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        pools = draw.choices(POOLS, k=draw.randint(1, 4))
        letters = []
        for _ in range(draw.randint(1, 40)):
            pool = draw.choice(pools)
            code = draw.randrange(0x110000) if pool is None else ord(draw.choice(pool))
            letters.append(chr(code if not 0xD800 <= code < 0xE000 else 0xFFFD))
        texts.append("".join(letters))
    return texts


def malformed_texts(count, seed):
    """Bytes that are not, or hardly, UTF-8."""
    draw = random.Random(seed)
    texts = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"a\xe2\x82", b"\xe2\x82a\x80", b"\xf8\x88\x80\x80\x80"]
    edges = b"\x00 a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xed\xee\xef\xf0\xf3\xf4\xf5\xff"
    for text in random_texts(count, seed):
        data = bytearray(text.encode())
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice(edges)
        texts.append(bytes(data[:draw.randint(1, len(data))]))
    return texts


def training_texts():
    """The documents of this project, its synthetic corpus, and SENTENCES."""
    documents = [json.loads(line)["text"] for line in (SOURCE / "data/tiny.jsonl").read_text().splitlines()]
    documents += [path.read_text() for path in sorted((SOURCE / "lib").glob("*/*/*.h"))]
    return documents + [path.read_text() for path in sorted(SOURCE.glob("*/README.md"))] + 3 * SENTENCES


def records(items, code):
    """The driver's records: texts (code B) or ids (code I)."""
    return b"".join(struct.pack("<I", len(item)) + (item if code == "B" else struct.pack(f"<{len(item)}I", *item))
                    for item in items)


def parse_records(data, code):
    items, at = [], 0
    size = 1 if code == "B" else 4
    while at < len(data):
        count, = struct.unpack_from("<I", data, at)
        items.append(data[at + 4:at + 4 + count] if code == "B" else list(struct.unpack_from(f"<{count}I", data, at + 4)))
        at += 4 + size * count
    return items


def run_driver(arguments, items, code_in, code_out):
    done = subprocess.run([DRIVER, *map(str, arguments)], input=records(items, code_in), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return parse_records(done.stdout, code_out)


def encode(tokenizer, texts, *more):
    """The ids of texts (strings or bytes) by our tokenizer."""
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    return run_driver(["encode", tokenizer, *more], data, "B", "I")


def decode(tokenizer, all_ids):
    return [text.decode(errors="replace") for text in run_driver(["decode", tokenizer], all_ids, "I", "B")]
