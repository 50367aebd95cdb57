"""A run's figures as a table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]

PERCENTS = (10, 50, 95)
COMPARISONS = ("single", "fed10", "fed50")
# What is not in the table of comparisons, with what it means.
QUERY_LINES = {
    "qps_8_clients": "questions a second, 8 clients, one project",
    "floor_qps_8": "  the same by direct calls, 8 threads",
    "fed10_qps_8_clients": "questions a second, 8 clients, 10 projects",
    "qps_8_clients_rerank": "questions a second, 8 clients, one project, reranked",
    "floor_qps_8_rerank": "  the same by direct calls, 8 threads",
    "fed10_qps_8_clients_rerank": "questions a second, 8 clients, 10 projects, reranked",
    "fed10_rerank_p95_8_clients_ms": "  their p95, ms",
    "rerank100_ms": "reading and reranking 100 prepared candidates, ms",
    "ingest_nodes_per_s": "nodes stored a second, embedded on the way",
    "ingest_cpu_ms_per_node": "  CPU of one, ms",
    "peak_rss_mb": "most memory of the service and its servers, MB",
}
INGEST_LINES = {
    "vectors_nodes_per_s": "nodes stored a second, vectors given",
    "vectors_cpu_ms_per_node": "  CPU of one, ms",
    "tokens_cpu_ms_per_node": "  preparing it for the reranker later (measured alone), ms",
    "ingest_nodes_per_s": "nodes stored a second, embedded on the way",
    "ingest_cpu_ms_per_node": "  CPU of one, ms",
    "model_texts_per_s": "texts a second, the model alone",
    "embed_ratio": "storing against the model alone",
    "turns_per_s": "turns of sessions taken in a second",
    "bare_model_turns_per_s": "  the model alone, in batches",
    "one_by_one_turns_per_s": "  the model alone, one text at a time",
    "largest_process_mb": "  most memory of the process that does it, MB",
    "kills": "its process killed",
    "lost": "  turns lost by that",
    "doubled": "  turns stored twice",
    "peak_rss_mb": "most memory of the service and its servers, MB",
}
RECALL_LINES = {
    "recall_at_50": "of the 50 nearest, found by the index",
    "recall_at_50_p10": "  of the worst tenth of questions, at most",
    "hnsw_p50_ms": "recall by the index, ms",
    "hnsw_p95_ms": "  p95, ms",
    "exact_p50_ms": "recall by comparing with every node, ms",
    "exact_p95_ms": "  p95, ms",
    "service_p50_ms": "a question through the service, without reranking, ms",
    "service_p95_ms": "  p95, ms",
    "index_ready_s": "until the service had made the index, s",
}
SOAK_LINES = {
    "requests": "questions, put at once or as jobs",
    "answered_with_hits": "  answered with 200 and at least one hit",
    "partial": "    of these not from every project in full",
    "http_requests": "HTTP requests they took",
    "unanswered": "  without any answer",
    "errors_5xx": "  answered with 5xx",
    "errors_5xx_without_retry_after": "    of these without Retry-After",
    "max_late_ms": "  latest after its timeout, ms",
    "jobs_accepted": "jobs accepted",
    "jobs_lost": "  of these without an end",
    "max_job_late_ms": "  latest after its deadline, ms",
    "late": "requests or jobs that came too late",
    "broken_promises": "answers that contradict an earlier one",
    "revisions_back": "looks at a job that showed an earlier revision than before",
    "workers_killed": "workers killed",
    "valkey_restarts": "restarts of Valkey",
    "rss_growth_mb": "more memory than before, MB",
    "connections_growth": "more connections than before",
}
JOBS_LINES = {
    "burst_submit_p95_ms": "submitting a job in a burst, p95, ms",
    "burst_terminal": "  jobs of the burst that ended",
    "burst_lost": "  jobs of the burst that did not",
    "burst_took_s": "  until the last one had ended, s",
    "single_p95_ms": "a question to one project meanwhile, p95, ms",
    "single_deadline_missed": "  of these not answered in time",
    "poll_after_final_p50_ms": "from a job's end until who waits for it knows, ms",
    "first_partial_ms": "from the first project's end until its hits can be read, ms",
    "first_hits_after_submit_ms": "  the same from the submission on, ms",
    "complete_after_submit_ms": "  until the answer is complete, ms",
    "submit_with_workers_stopped_ms": "submitting a job while no worker lives, ms",
}
LINES = {
    "query": QUERY_LINES,
    "ingest": INGEST_LINES,
    "recall": RECALL_LINES,
    "soak": SOAK_LINES,
    "jobs": JOBS_LINES,
}


def table(report: Report) -> Iterator[str]:
    """The lines of a run's table, headed by what it was measured on."""
    yield from heading(report)
    if report["bench"] == "query":
        yield from _comparisons(report)
    if report["bench"] == "recall":
        said = "yes" if report["explain_uses_index"] else "NO"
        yield f"plan: {report['plan']}; PostgreSQL takes the index: {said}"
    if report["bench"] == "jobs":
        said = "yes" if report["order_equals_exact"] else "NO"
        yield f"the answers' ten best are those of one exact run, in its order: {said}"
    for key, title in LINES[report["bench"]].items():
        yield f"{title:<64}{_number(report[key]):>10}"
    for said in report.get("examples", ()):
        yield f"! {said}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _length(report: Report) -> str:
    if report["bench"] == "soak":
        return f"{report['clients']} clients for {report['seconds']} s"
    return f"{report['rounds']} rounds"


def heading(report: Report) -> Iterator[str]:
    yield (
        f"mem bench {report['bench']}, version {report['version']}: {report['cpu_count']} cores,"
        f" load {report['load_start']} at the start and {report['load_end']} at the end,"
        f" {report['projects']} projects of {report['nodes']} nodes, seed {report['seed']},"
        f" {_length(report)}, {report['took_s']:.0f} s"
    )
    if report["busy"]:
        yield (
            "BUSY: other processes used"
            f" {report['others_share']:.0%} of the machine; do not compare these figures."
        )
    yield ""


def _comparisons(report: Report) -> Iterator[str]:
    titles = [f"p{percent}" for percent in PERCENTS] + ["CPU"]
    yield f"{'ms':<18}{'through the service':^36}{'direct calls':^36}"
    yield " " * 18 + "".join(f"{title:>9}" for title in titles * 2)
    for suffix in ("", "_rerank"):
        for name in COMPARISONS:
            if f"{name}_p50_ms{suffix}" in report:
                values = [*_row(report, name, suffix), *_row(report, f"{name}_floor", suffix)]
                title = name + (" reranked" if suffix else "")
                yield f"{title:<18}" + "".join(f"{value:>9.1f}" for value in values)
    yield ""


def _row(report: Report, name: str, suffix: str) -> Sequence[float]:
    keys = [f"{name}_p{percent}_ms{suffix}" for percent in PERCENTS]
    return [report[key] for key in (*keys, f"{name}_cpu_ms{suffix}")]
