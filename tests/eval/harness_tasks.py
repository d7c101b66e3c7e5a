"""Small made tasks for record_harness.py. They hold what is easy to get wrong: characters of several bytes, runs of spaces,
empty contexts, texts longer than the model, labels that are letters or numbers, ties."""

TEXTS = [
    "The captain counted the boxes on the deck twice, and both times one of them was missing.",
    "A letter  came from\tthe north.\n\nNobody in the village could read it; the miller kept it anyway.",
    "\u00dcber den D\u00e4chern schwebte ein Ballon \u2014 rot, gr\u00fcn und blau. \u4eca\u65e5\u306f\u96e8\u3067\u3059\u3002 \U0001f6a2\u2693",
    "one",
    "",
    " leading and trailing spaces ",
    "The sea was calm.\u00a0The wind had gone.\u2003Only the gulls were awake, and the cook, who was always awake. " * 3,
]

PROMPTS = ["The captain", "Question: what is missing?\nAnswer:", "\u4eca\u65e5", "a"]

_CHOICES = [
    {"query": "The captain counted the boxes and found that one of them was", "choices": ["missing", "a letter", "blue"], "gold": 0},
    {"query": "Question: Who kept the letter?\nAnswer:", "choices": ["the miller", "the captain"], "gold": 0},
    {"query": "Der Ballon war", "choices": ["rot", "gr\u00fcn", "\u96e8\u3067\u3059", "\U0001f6a2"], "gold": 2},
    {"query": "", "choices": ["the sea", "the wind was gone", "a"], "gold": 1},
    {"query": "Ends with spaces   ", "choices": ["and goes on", "x"], "gold": 1},
    {"query": "Nobody in the village could read it; " * 5, "choices": ["the miller", "the cook", "the gulls"], "gold": 2},
    {"query": "One letter:", "choices": ["A", "B", "C", "D"], "gold": 3},
    {"query": "Equal choices:", "choices": ["same", "same"], "gold": 1},
    {"query": "The wind", "choices": ["had gone", "had gone away", "had"], "gold": 0},
    {"query": "Ends with a line break\n", "choices": ["yes", "no, it does not"], "gold": 0},
]

_WORDS = [
    {"context": "The captain counted the boxes on the", "continuation": "deck"},
    {"context": "Nobody in the village could read", "continuation": "it"},
    {"context": "\u00dcber den D\u00e4chern schwebte ein", "continuation": "Ballon"},
    {"context": "", "continuation": "alone"},
    {"context": "The sea was calm. " * 9, "continuation": "wind"},
    {"context": "The cook was always", "continuation": "awake, and so"},
    {"context": "a b c d e f g h", "continuation": "i"},
]

_HELLASWAG = [
    {"activity_label": "Sailing", "ctx_a": "A man stands on a boat.", "ctx_b": "he", "ctx": "",
     "endings": ["pulls a rope [step] slowly.", "eats  the   boat.", "reads a letter [title] Then he sleeps.", "sings"], "label": "0"},
    {"activity_label": "Cooking", "ctx_a": "[header] How to boil an egg [title] Take water.", "ctx_b": "",
     "ctx": "", "endings": ["Boil it.", "Freeze it.", "Sell it.", "Paint it [substeps] red."], "label": "1"},
    {"activity_label": "Travel", "ctx_a": "She arrives.", "ctx_b": "She sees NYC and \u00c9tretat", "ctx": "",
     "endings": [" with a map ", "without a map", "and leaves", "\u00e9tonn\u00e9e"], "label": "2"},
    {"activity_label": " Printing ", "ctx_a": "Types are set.", "ctx_b": "fine STRASSE \u01c4 \u039f\u0394\u039f\u03c2 i\u0307stanbul", "ctx": "",
     "endings": ["one", "two", "three", "four"], "label": "3"},
    {"activity_label": "Rowing", "ctx_a": "Eight people sit in a boat.", "ctx_b": "the one at the end", "ctx": "",
     "endings": ["shouts.", "is asleep.", "rows alone.", "stands on [a [b] c] the bow."], "label": "0"},
]

_PIQA = [
    {"goal": "To open a letter", "sol1": "use a knife.", "sol2": "use a spoon.", "label": 0},
    {"goal": "Dry a map", "sol1": "put it into water", "sol2": "put it in the sun", "label": 1},
    {"goal": "Find the north \u2014 at night", "sol1": "look at the stars", "sol2": "look at the floor", "label": 0},
    {"goal": "Keep bread", "sol1": "in a box", "sol2": "in the rain, for a week", "label": 1},
    {"goal": "Tie a boat", "sol1": "with a rope", "sol2": "with a letter", "label": 0},
]

_ARC = [
    {"id": "a", "question": "What do gulls eat?", "choices": {"text": ["fish", "boxes", "maps", "wind"], "label": ["A", "B", "C", "D"]}, "answerKey": "A"},
    {"id": "b", "question": "Which is hot?", "choices": {"text": ["ice", "the sun", "rain"], "label": ["1", "2", "3"]}, "answerKey": "2"},
    {"id": "c", "question": "Wie hei\u00dft das Meer?", "choices": {"text": ["Nordsee", "K\u00f6ln", "Brot", "rot", "f\u00fcnf"], "label": ["A", "B", "C", "D", "E"]}, "answerKey": "C"},
    {"id": "d", "question": "How many legs has a miller?", "choices": {"text": ["two", "four", "six", "none"], "label": ["A", "B", "C", "D"]}, "answerKey": "D"},
]

_WINOGRANDE = [
    {"sentence": "The box did not fit on the deck because _ was too large.", "option1": "the box", "option2": "the deck", "answer": "1"},
    {"sentence": "Anna wrote to Berta because _ had asked her to.", "option1": "Anna", "option2": "Berta", "answer": "2"},
    {"sentence": "The cook woke the captain, for _  was late.", "option1": "the cook", "option2": "the captain", "answer": "2"},
    {"sentence": "_ was red, not the boat.", "option1": "The balloon", "option2": "The b\u00e2teau", "answer": "1"},
]

_LAMBADA = [
    {"text": "The captain counted the boxes, and the cook counted the boxes"},
    {"text": "Nobody could read the letter, so the miller kept the letter."},
    {"text": "He said \u201cyes\u201d and she said \u201cno\u201d"},
    {"text": "two  spaces before the last  word"},
    {"text": "single"},
]

_MMLU = [
    {"question": " How many bones has a hand? ", "subject": "anatomy", "choices": ["27", "3", "100", "none"], "answer": 0},
    {"question": "Where is the heart?", "subject": "anatomy", "choices": ["in the foot", "in the chest", "in the hand", "at home"], "answer": 1},
    {"question": "What is a femur?", "subject": "anatomy", "choices": ["a fish", "a boat", "a bone", "a letter"], "answer": 2},
    {"question": "Which is not an organ?", "subject": "anatomy", "choices": ["liver", "lung", "skin", "letter"], "answer": 3},
]

_BOOLQ = [
    {"question": "is the sea calm at night", "passage": "The sea was calm. The wind had gone.", "idx": 0, "label": 1},
    {"question": "did the miller read the letter", "passage": "Nobody in the village could read it.", "idx": 1, "label": 0},
    {"question": "war der Ballon rot", "passage": "\u00dcber den D\u00e4chern schwebte ein Ballon \u2014 rot.", "idx": 2, "label": 1},
]

_OPENBOOKQA = [
    {"id": "a", "question_stem": "Gulls live by", "choices": {"text": ["the sea", "boxes", "maps", "night"], "label": ["A", "B", "C", "D"]}, "answerKey": "A"},
    {"id": "b", "question_stem": "A letter is made of", "choices": {"text": ["water", "paper", "wind", "bread and salt"], "label": ["A", "B", "C", "D"]}, "answerKey": " B"},
    {"id": "c", "question_stem": "Rot ist", "choices": {"text": ["ein Ton", "eine Zahl", "ein Boot", "eine Farbe"], "label": ["A", "B", "C", "D"]}, "answerKey": "D"},
]

_SCIQ = [
    {"question": "What moves a sail?", "distractor1": "salt", "distractor2": "the moon", "distractor3": "a map", "correct_answer": "wind",
     "support": "  The wind moves a sail. It moves mills, too."},
    {"question": "What is ice?", "distractor1": "hot", "distractor2": "a letter", "distractor3": "air", "correct_answer": "frozen water", "support": ""},
    {"question": "Was ist ein D\u00e4mon?", "distractor1": "a", "distractor2": "b", "distractor3": "c", "correct_answer": "d", "support": " \n "},
]

_WIKITEXT = [
    {"page": " = The Boat = \n \n The boat ( built in 1 @,@ 902 ) was 3 @.@ 5 m long ; it had \" two \" masts . \n = = Crew = = \n 5 N men 's boats : all"},
    {"page": "a well @-@ known ' quote ' and sailors ' boats [ see ( here ] ) , at 4 \u00b0 N , { x } ! What ? = = = End = = = /' 5/' 6/ "},
    {"page": "\u4eca\u65e5\u306f\u96e8\u3067\u3059\u3002 ( open \" quoted"},
]

_TRUTHFULQA = [
    {"question": "Can gulls read?", "mc1_targets": {"choices": ["No, they cannot.", "Yes.", "Only letters."], "labels": [1, 0, 0]},
     "mc2_targets": {"choices": ["No.", "They cannot.", "Yes.", "Only at night."], "labels": [1, 1, 0, 0]}},
    {"question": "Wie gro\u00df ist das Meer?", "mc1_targets": {"choices": ["gro\u00df", "klein"], "labels": [1, 0]},
     "mc2_targets": {"choices": ["klein", "gro\u00df", "rot"], "labels": [0, 1, 0]}},
]

# Long and short questions, and answers of each form that GSM8K has.
_GSM8K = [
    {"question": "A boat has 3 boxes. The cook eats 2. How many are left?", "answer": "3 - 2 = <<3-2=1>>1 box is left.\n#### 1"},
    {"question": "How much are 12 maps at $100 each?", "answer": "They are 12 * $100 = $1,200.\n#### 1,200"},
    {"question": "It is 4 degrees and becomes 7 degrees colder. How warm is it?", "answer": "4 - 7 = -3.\n#### -3"},
    {"question": "\u00dcber den D\u00e4chern sind 1 Ballon und 2 V\u00f6gel. Wie viele?", "answer": "1 + 2 = 3\n#### $3."},
    {"question": "The captain counts " + "one box, " * 40 + "how many?", "answer": "He counts 40.\n#### 40."},
    {"question": "Half of 5?", "answer": "It is 2.5.\n#### 2.5"},
    {"question": "Is there an answer?", "answer": "No."},
    {"question": "How many letters has the word a?", "answer": "One.\n#### 1"},
]

TASKS = {"texts": [{"text": text} for text in TEXTS], "choices": _CHOICES, "words": _WORDS, "hellaswag": _HELLASWAG, "piqa": _PIQA,
         "arc_easy": _ARC, "winogrande": _WINOGRANDE, "lambada_openai": _LAMBADA, "mmlu_anatomy": _MMLU, "gsm8k": _GSM8K,
         "boolq": _BOOLQ, "openbookqa": _OPENBOOKQA, "sciq": _SCIQ, "wikitext": _WIKITEXT, "truthfulqa_mc1": _TRUTHFULQA,
         "truthfulqa_mc2": _TRUTHFULQA}

# The tasks with examples. Their examples are other records, the last ones first, so that their order is seen.
FEWSHOT = ["choices", "words", "hellaswag", "piqa", "arc_easy", "winogrande", "lambada_openai", "mmlu_anatomy", "gsm8k",
           "boolq", "openbookqa", "sciq"]


def _examples(name):
    def other(value):
        if isinstance(value, str):
            return value.replace("the", "this").replace("The", "That")
        if isinstance(value, list):
            return [other(entry) for entry in value]
        return {key: other(entry) if key != "subject" else entry for key, entry in value.items()} if isinstance(value, dict) else value
    records = [other(record) for record in reversed(TASKS[name]) if len(str(record)) < 220]
    return records * (4 if name == "choices" else 1)  # more than fit into CPython's list of a small sample


TASKS |= {f"{name}_fewshot": _examples(name) for name in FEWSHOT}
