import pytest

from reckoning.launch.sanity import fault_of


@pytest.mark.parametrize(
    ("texts", "ids", "fault"),
    [
        (["!!!!!!!!", "!!!!!!!!"], [[0] * 8, [0] * 8], "one token (id 0) repeated"),
        (["aaaaaaaa", "bbbbbbbb"], [[5] * 8, [6] * 8], "one token (id 5) repeated"),
        (["!!!!!!!!", "!!!!!!!!!!"], [], "one character repeated"),
        (["the the the the the the the the"], [], "one word repeated"),
        (["", " \n"], [], "empty output"),
        ([], [], "empty output"),
        (["", ""], [[7] * 16, [7] * 16], "one token (id 7) repeated"),
    ],
)
def test_garbage_is_named(texts, ids, fault):
    found = fault_of(texts, ids)
    assert found is not None and found.startswith(fault)


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["A town by the sea.", "Spoons, pots"], []),
        (["!!!!!!!!", "A town by the sea"], [[0] * 8, [1, 2, 3, 4, 5, 6, 7, 8]]),  # one sane answer is enough
        (["", ""], [[1, 2, 3, 4, 5, 6, 7, 8]]),  # tokens without text, such as halves of characters
        (["!!!!!!!"], []),  # seven: too short to judge
        (["....... ok"], []),
    ],
)
def test_sane_output_passes(texts, ids):
    assert fault_of(texts, ids) is None
