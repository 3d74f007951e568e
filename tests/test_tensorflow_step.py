"""Steps on TensorFlow under real memory pressure, in a process whose allocator has a limit."""

from test_backend_contract import LIMITED_CPU, needs, run_checks


def test_steps_that_run_out_of_memory_leave_nothing_behind(tmp_path):
    needs("tensorflow")
    run_checks(["tensorflow_step_checks.py"], backend="tensorflow", keras_home=tmp_path, **LIMITED_CPU)
