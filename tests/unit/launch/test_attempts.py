from reckoning.launch import attempts


def interrupted(folder, digest="d", points=0):
    one = attempts.begin(folder, digest)
    one.log.write_text("log")
    for index in range(points):
        one.keep_point({"index": index})
    return one


def test_an_attempt_without_an_end_was_interrupted_and_keeps_its_points(tmp_path):
    interrupted(tmp_path, points=2)
    last = attempts.begin(tmp_path, "d")
    last.end("ok", None)
    assert attempts.as_outcome(attempts.read(tmp_path))[1]["status"] == "interrupted"  # killed before it was saved
    last.save()
    first, second = attempts.as_outcome(attempts.read(tmp_path))
    assert (first["status"], first["ended_at"], first["points_kept"]) == ("interrupted", None, 2)
    assert (second["status"], second["class"]) == ("ok", None) and second["ended_at"]


def test_only_the_newest_five_interrupted_attempts_keep_their_log(tmp_path):
    for _ in range(8):
        interrupted(tmp_path)
    attempts.begin(tmp_path, "d")
    kept = sorted(path.parent.name for path in tmp_path.glob("attempts/*/server.log"))
    assert kept == ["4", "5", "6", "7", "8"]
    assert len(attempts.read(tmp_path)) == 9


def test_attempts_of_another_definition_or_before_a_whole_outcome_are_history(tmp_path):
    interrupted(tmp_path, digest="old")
    interrupted(tmp_path)
    whole = attempts.begin(tmp_path, "d")
    whole.end("ok", None, final=True)
    whole.save()
    attempts.begin(tmp_path, "d")
    assert len(attempts.read(tmp_path)) == 1


def test_a_folder_without_a_note_is_an_interrupted_attempt(tmp_path):
    (tmp_path / "attempts/1").mkdir(parents=True)
    last = attempts.begin(tmp_path, "d")
    assert last.note["number"] == 2
    assert attempts.as_outcome(attempts.read(tmp_path))[0]["status"] == "interrupted"
