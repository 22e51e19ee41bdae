from srl.core.readings import Reading


def test_a_reading_takes_over_what_an_unsent_one_says_once() -> None:
    earlier, later = Reading(), Reading()
    for reading, value in ((earlier, 1.0), (later, 3.0)):
        reading.count("steps", value)
        reading.mean("loss", value)
        reading.point("eval", value, 100, 1)
    earlier.episode("return", 7.0)
    later.follow(earlier)
    assert later.shown() == {"steps": 3.0, "loss": 2.0, "eval": 3.0, "return": 7.0}
