from reckoning.files import write_json
from reckoning.launch import progress

PLAN = {
    "arms": [
        {"slug": "a", "name": "A", "time": {"launch_s": 60.0}},
        {"slug": "b", "name": "B/2", "time": {"launch_s": 120.0}},
    ],
    "launches": [
        {"order": order, "block": block, "arm": arm, "digest": f"{arm}{block}"}
        for order, (arm, block) in enumerate([("a", 1), ("b", 1), ("b", 2), ("a", 2)])
    ],
}


def test_the_place_is_that_of_the_plan():
    assert progress.place_of(PLAN, "b", 2) == "launch 3 of 4 (block 2, B/2)"


def test_time_left_is_the_model_corrected_by_what_was_seen():
    assert progress.left_s(PLAN, {}, ("a", 1), 0) == 60 + 120 + 120 + 60
    # Launch a1 took half as long again as modelled: 90 s for 60. b1 runs for 100 s of its 180; b2 180 and a2 90 follow.
    assert progress.left_s(PLAN, {("a", 1): 90.0}, ("b", 1), 100) == 80 + 180 + 90
    assert progress.left_s(PLAN, {("a", 1): 90.0}, ("b", 1), 500) == 180 + 90


def test_without_a_model_the_finished_launches_serve():
    bare = {
        "arms": [{"slug": "a", "name": "A", "time": None}, {"slug": "b", "name": "B", "time": None}],
        "launches": PLAN["launches"],
    }
    assert progress.left_s(bare, {}, ("a", 1), 0) is None
    assert progress.left_s(bare, {("a", 1): 30.0, ("b", 1): 50.0}, ("b", 2), 10) == 40 - 10 + 40


def test_finished_launches_are_those_of_this_plan(tmp_path):
    write_json(tmp_path / "a/block1/outcome.json", {"digest": "a1", "durations": {"total_s": 7.5}})
    write_json(tmp_path / "b/block1/outcome.json", {"digest": "old", "durations": {"total_s": 9}})
    (tmp_path / "b/block2").mkdir()
    (tmp_path / "b/block2/outcome.json").write_text("{")
    assert progress.finished(PLAN, tmp_path) == {("a", 1): 7.5}


def test_durations_in_words():
    words = {0.2: "1 s", 40: "40 s", 59.4: "59 s", 60: "1 min", 360: "6 min", 7500: "2 h 05 min"}
    assert {seconds: progress.duration_words(seconds) for seconds in words} == words


def test_the_line_has_place_stage_elapsed_and_left():
    said = []
    speak = progress.Progress("launch 5 of 12 (block 2, tp2)", said.append, lambda: 355.0)
    speak("loading weights")
    speak.since -= 14
    speak("loading weights")  # too soon for another line
    speak.said_at -= 20
    speak("loading weights")
    event = {
        "event": "point-progress",
        "position": 2,
        "of": 8,
        "workload": "chat",
        "concurrency": 4,
        "done": 12,
        "requests": 20,
    }
    speak.of_load(event)
    assert said == [
        "launch 5 of 12 (block 2, tp2): loading weights; about 6 min left",
        "launch 5 of 12 (block 2, tp2): loading weights, 14 s; about 6 min left",
        "launch 5 of 12 (block 2, tp2): point 3 of 8 (chat, C=4), 12 of 20 requests; about 6 min left",
    ]
