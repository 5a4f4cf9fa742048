"""The bar of a run: stage, sweeps, time left and numbers; without a command nothing."""

from gdd_book.progress import Run


def test_sweeps_that_were_found_do_not_count_in_the_time_left(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    run = Run(shown=True)
    with run.bar(40, "pretraining") as bar:
        bar._time = lambda: now[0]
        bar.begin("layer 2", 20, 8, 50.0, "name")
        now[0] += 10.0
        bar.step(2, residual=0.123456, active=1500.0)
        text = str(bar)
    assert text.startswith("pretraining, layer 2:  50%") and "10/20 [00:10<00:50," in text
    assert text.endswith("residual=0.123, active=1500.0]") and run.spent == {"name": 50.0}


def test_a_run_that_nobody_started_as_a_command_is_silent(capsys):
    with Run().bar(10, "layer 1") as bar:
        bar.begin("layer 2", 10)
        bar.step(9, residual=0.1)
    assert capsys.readouterr().err == ""
