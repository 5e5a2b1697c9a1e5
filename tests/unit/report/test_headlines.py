"""What stands at the top of the page."""

from reckoning.report.content import headlines_of


def test_an_arm_that_was_started_and_failed_is_at_the_top_and_a_rejected_one_is_not() -> None:
    def finding(rank: int, kind: str, verdict: str) -> dict:
        return {"rank": rank, "kind": kind, "verdict": verdict, "text": f"{kind} {verdict} {rank}"}

    failed = [finding(n, "failed-arm", "failed") for n in range(2, 7)]
    ranked = [finding(1, "winner-latency", "shown"), *failed, finding(7, "failed-arm", "rejected")]
    top, others = headlines_of({"findings": ranked})
    assert [one["text"] for one in top] == ["winner-latency shown 1", *(f"failed-arm failed {n}" for n in (2, 3, 4))]
    assert len(top) + len(others) == len(ranked)
