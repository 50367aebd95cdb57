"""How good a ranking is, by trec_eval's definitions."""

from collections.abc import Sequence

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

from app.eval.dataset import Judged
from app.eval.runs import Run, score_at

MEASURES = {
    "recall@5": "recall_5",
    "recall@10": "recall_10",
    "mrr": "recip_rank",
    "ndcg@10": "ndcg_cut_10",
    "hit@1": "success_1",
}
FIGURES = tuple(MEASURES)
MAIN = "ndcg@10"
"""What one figure has to speak for all."""

Values = NDArray[np.float64]
"""A row for each question, a column for each of FIGURES, every value in [0, 1]."""


def measure(run: Run, judged: Judged, questions: Sequence[str]) -> Values:
    """The figures of each of these questions, in their order; 0 where nothing was found.

    Each must have a node that was judged to answer it.
    """
    evaluator = pytrec_eval.RelevanceEvaluator(
        {question: dict(judged[question]) for question in questions}, set(MEASURES.values())
    )
    scored = {
        question: {node: score_at(rank) for rank, node in enumerate(run[question], start=1)}
        for question in questions
        if run.get(question)
    }
    found = evaluator.evaluate(scored)
    rows = [
        [found.get(question, {}).get(measure, 0.0) for measure in MEASURES.values()]
        for question in questions
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, len(FIGURES))


def means(values: Values) -> dict[str, float]:
    return dict(zip(FIGURES, (float(mean) for mean in values.mean(axis=0)), strict=True))
