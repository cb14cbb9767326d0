"""A local file of every task, as small as it can be, and what the harness asks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Example:
    """A file's row, and the question that it becomes: its context or contexts, its answers, the right one."""

    file: str
    row: dict[str, Any]
    contexts: tuple[str, ...]
    answers: tuple[str, ...] = ()
    gold: Any = None


EXAMPLES = {
    "piqa": Example(
        "piqa",
        {"query": "Question: Open a jar\n", "choices": ["Turn it", "Eat it"], "gold": 0},
        ("Question: Open a jar\nAnswer:",),
        (" Turn it", " Eat it"),
        0,
    ),
    "siqa": Example(
        "siqa",
        {
            "query": "Context: Al ran.\nQuestion: Why?\nChoices:\nA. to hide\nB. for fun\nAnswer:",
            "choices": ["A", "B"],
            "gold": 1,
        },
        ("Q: Al ran. Why?\nA:",),
        (" to hide", " for fun"),
        1,
    ),
    "boolq": Example(
        "boolq",
        {"query": "Passage: It rains.\nQuestion: is it wet?", "choices": ["no", "yes"], "gold": 1},
        ("It rains.\nQuestion: is it wet?\nAnswer:",),
        (" no", " yes"),
        1,
    ),
    "hellaswag": Example(
        "hellaswag",
        {
            "activity_label": "Golf",
            "ctx_a": "A man stands.",
            "ctx_b": "he",
            "endings": ["swings.", "swims.", "sings.", "sinks."],
            "label": 2,
        },
        ("Golf: A man stands. He",),
        (" swings.", " swims.", " sings.", " sinks."),
        2,
    ),
    "winogrande": Example(
        "winogrande",
        {
            "context_options": ["Sue paid Meg as Sue", "Sue paid Meg as Meg"],
            "continuation": "worked.",
            "gold": 1,
        },
        ("Sue paid Meg as Sue", "Sue paid Meg as Meg"),
        (" worked.", " worked."),
        "worked.",
    ),
    "race_m": Example(
        "race",
        {
            "example_id": "middle1.txt",
            "article": "A cat sat.",
            "question": "Who sat?",
            "options": ["dog", "cat", "cow", "hen"],
            "answer": "B",
        },
        ("Article: A cat sat.\n\nWho sat?",),
        (" dog", " cat", " cow", " hen"),
        1,
    ),
    "race_h": Example(
        "race",
        {
            "example_id": "high1.txt",
            "article": "A hen ran.",
            "question": "Who ran?",
            "options": ["dog", "cat", "cow", "hen"],
            "answer": "D",
        },
        ("Article: A hen ran.\n\nWho ran?",),
        (" dog", " cat", " cow", " hen"),
        3,
    ),
    "arc_easy": Example(
        "arc_easy",
        {"query": "Question: Ice is", "choices": ["hot", "cold", "dry"], "gold": 1},
        ("Question: Ice is\nAnswer:",),
        (" hot", " cold", " dry"),
        1,
    ),
    "arc_challenge": Example(
        "arc_challenge",
        {"query": "Question: Fire is", "choices": ["hot", "cold"], "gold": 0},
        ("Question: Fire is\nAnswer:",),
        (" hot", " cold"),
        0,
    ),
    "nq_open": Example(
        "nq_open",
        {"question": "who wrote emma", "answer": ["Jane Austen", "Austen"]},
        ("Answer these questions:\n\nQ: who wrote emma?\nA:",),
        gold=["Jane Austen", "Austen"],
    ),
    "triviaqa": Example(
        "triviaqa",
        {"context": "Question: Who sang?\nAnswer:", "answer": "Cher", "aliases": ["Cherilyn", "Cher"]},
        ("Question: Who sang?\nAnswer:",),
        gold=["Cher", "Cherilyn"],
    ),
    "agnews": Example(
        "agnews_test",
        {"title": "Cup final", "description": "They won.", "label": 2},
        ("Cup final They won.",),
        (" World", " Sports", " Business", " Sci/Tech"),
        1,
    ),
    "amazon": Example(
        "amazon_polarity_test",
        {"text": "Broke\nat once.", "label": 0},
        ("Broke at once.",),
        (" negative", " positive"),
        0,
    ),
    "yelp": Example(
        "yelp_polarity_test",
        {"text": "Great\nfood.", "label": 1},
        ("Great food.",),
        (" negative", " positive"),
        1,
    ),
    "fever": Example(
        "fever_dev",
        {"claim": "Rome is in Italy.", "label": "SUPPORTS"},
        ("Rome is in Italy.",),
        (" REFUTES", " SUPPORTS"),
        "SUPPORTS",
    ),
    "sst2_icl": Example(
        "sst2_dev",
        {"sentence": "a joy .", "label": 1},
        ("sentence: a joy .",),
        (" negative", " positive"),
        1,
    ),
    "mrpc_icl": Example(
        "mrpc_val",
        {"sentence1": "He ran .", "sentence2": "He sat .", "label": "not_equivalent"},
        ("sentence 1: He ran . [SEP] sentence 2: He sat .",),
        (" not_equivalent", " equivalent"),
        0,
    ),
    "mnli": Example(
        "mnli_dev",
        {"premise": "It rains .", "hypothesis": "It is wet .", "label": 0},
        ("It rains .\nQuestion: It is wet . True, False or Neither?\nAnswer:",),
        (" True", " Neither", " False"),
        0,
    ),
    "mrpc": Example(
        "mrpc_val",
        {"sentence1": "He ran .", "sentence2": "He sat .", "label": "not_equivalent"},
        (
            "Sentence 1: He ran .\nSentence 2: He sat .\n"
            "Question: Do both sentences mean the same thing?\nAnswer:",
        ),
        (" no", " yes"),
        0,
    ),
    "qnli": Example(
        "qnli_dev",
        {"question": "When?", "sentence": "In 1993.", "label": "not_entailment"},
        ("When?\nIn 1993.\nQuestion: Does this response answer the question?\nAnswer:",),
        (" yes", " no"),
        1,
    ),
    "qqp": Example(
        "qqp_dev",
        {"question1": "Why?", "question2": "How come?", "label": "duplicate"},
        (
            "Question 1: Why?\nQuestion 2: How come?\n"
            "Question: Do both questions ask the same thing?\nAnswer:",
        ),
        (" no", " yes"),
        1,
    ),
    "sst2": Example(
        "sst2_dev",
        {"sentence": "a joy .", "label": 1},
        ("a joy .\nQuestion: Is this sentence positive or negative?\nAnswer:",),
        (" negative", " positive"),
        1,
    ),
    "mmlu": Example(
        "mmlu_test",
        {
            "question": "2 + 2?",
            "choice0": "3",
            "choice1": "4",
            "choice2": "5",
            "choice3": "6",
            "answer": "1",
            "subject": "abstract_algebra",
        },
        (
            "The following are multiple choice questions (with answers) about abstract algebra.\n\n"
            "2 + 2?\nA. 3\nB. 4\nC. 5\nD. 6\nAnswer:",
        ),
        (" A", " B", " C", " D"),
        1,
    ),
    "copa": Example(
        "copa",
        {"query": "It rained, therefore", "choices": ["I slept.", "I got wet."], "gold": 1},
        ("It rained, therefore",),
        (" I slept.", " I got wet."),
        1,
    ),
    "jeopardy": Example(
        "jeopardy",
        {"context": "ROME: It fell in this year", "continuation": "476"},
        ("ROME: It fell in this year",),
        (" 476",),
        " 476",
    ),
}
"""A question of every task, and of a file of each form for any task."""


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
